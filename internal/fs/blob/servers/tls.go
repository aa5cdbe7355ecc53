package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TLS starts a server for a host name with a certificate that an authority of
// its own signed. It returns where it listens and the authority, in PEM. It
// ends with the test.
func TLS(t testing.TB, host string, handler http.Handler) (address string, authority []byte) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	root := template(1, "authority of a test")
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	fail(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	leaf := template(2, host)
	leaf.DNSNames = []string{host}
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, rootKey)
	fail(err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
}

// Connect is an HTTP proxy for tunnels (CONNECT).
type Connect struct {
	Address string // host and port
	// Tunnels counts those that were made.
	Tunnels  atomic.Int64
	routes   map[string]string
	password string
}

// ConnectProxy starts a proxy that leads to the addresses in routes, by the
// host and port that is asked for, and nowhere else. With a password it wants
// it, of the user "user". It ends with the test.
func ConnectProxy(t testing.TB, routes map[string]string, password string) *Connect {
	t.Helper()
	c := &Connect{routes: routes, password: password}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.Address = server.Listener.Addr().String()
	return c
}

// ServeHTTP implements http.Handler.
func (c *Connect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.password != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+c.password)) {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	target, ok := c.routes[r.Host]
	if r.Method != http.MethodConnect || !ok {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	up, err := net.Dial("tcp", target)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer up.Close()
	down, rest, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	c.Tunnels.Add(1)
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(up, rest)
		_ = up.(*net.TCPConn).CloseWrite()
		close(ended)
	}()
	_, _ = io.Copy(down, up)
	_ = down.Close()
	<-ended
}
