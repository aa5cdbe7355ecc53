package servers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// FakeGCS starts fake-gcs-server, a stand-in for Google Cloud Storage, with a
// bucket, in memory. It ends with the test.
//
// Before it stands a handler that does what the service is documented to do and
// the stand-in does not: it looks at the condition of a compose request, cuts
// listings into pages, prefixes counted too, and makes no bucket of an upload.
func FakeGCS(t testing.TB, bucket string) Server {
	t.Helper()
	binary := install(t, fakeGCSModule, "", fakeGCSVersion)
	address := launch(t, func(address string) *exec.Cmd {
		host, port := split(t, address)
		return exec.Command(binary, "-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-public-host", address)
	})
	target := &url.URL{Scheme: "http", Host: address}
	answer, err := http.Post(target.String()+"/storage/v1/b?project=test", "application/json", strings.NewReader(fmt.Sprintf(`{"name":%q}`, bucket)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("making the bucket: status %d", answer.StatusCode)
	}
	g := &gcs{target: target, bucket: bucket, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	// It looks at the host that is asked.
	g.forward = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: g.client.Transport}
	front := httptest.NewServer(g)
	t.Cleanup(func() {
		front.Close()
		g.client.CloseIdleConnections()
	})
	return Server{Endpoint: front.URL}
}

func split(t testing.TB, address string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// gcs is the handler before fake-gcs-server.
type gcs struct {
	target  *url.URL
	bucket  string
	client  *http.Client
	forward *httputil.ReverseProxy
	writes  sync.RWMutex // held alone by a compose request between its look and its write
}

// ServeHTTP implements http.Handler.
func (g *gcs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	objects := "/storage/v1/b/" + g.bucket + "/o"
	upload := strings.HasPrefix(r.URL.Path, "/upload/")
	switch {
	case upload && r.URL.Path != "/upload"+objects:
		refuse(w, http.StatusNotFound, "notFound")
	case r.Method == http.MethodGet && r.URL.Path == objects:
		g.list(w, r)
	case r.Method == http.MethodPost && !upload && strings.HasSuffix(r.URL.EscapedPath(), "/compose"):
		g.compose(w, r)
	case r.Method == http.MethodGet:
		g.forward.ServeHTTP(w, r)
	default:
		g.writes.RLock()
		defer g.writes.RUnlock()
		g.forward.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"errors":[{"reason":%q}]}}`, status, reason, reason)
}

// ask gets JSON from fake-gcs-server and returns the status.
func (g *gcs) ask(r *http.Request, path, query string, v any) (int, error) {
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, g.target.String()+path+"?"+query, nil)
	if err != nil {
		return 0, err
	}
	answer, err := g.client.Do(q)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer.StatusCode, err
	}
	return answer.StatusCode, json.Unmarshal(text, v)
}

// entry is an object or a prefix of a listing.
type entry struct {
	name   string
	object json.RawMessage // nil: a prefix
}

// list answers with one page of the whole listing. The token is the last name
// of the page before.
func (g *gcs) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("maxResults"))
	if err != nil || limit <= 0 || limit > 1000 {
		limit = 1000
	}
	after := query.Get("pageToken")
	query.Del("maxResults")
	query.Del("pageToken")
	var all struct {
		Items    []json.RawMessage `json:"items"`
		Prefixes []string          `json:"prefixes"`
	}
	status, err := g.ask(r, r.URL.Path, query.Encode(), &all)
	if err != nil || status != http.StatusOK {
		refuse(w, http.StatusBadGateway, "backendError")
		return
	}
	var entries []entry
	for _, o := range all.Items {
		var named struct{ Name string }
		if json.Unmarshal(o, &named) == nil && named.Name > after {
			entries = append(entries, entry{named.Name, o})
		}
	}
	for _, p := range all.Prefixes {
		if p > after {
			entries = append(entries, entry{name: p})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	page := map[string]any{"kind": "storage#objects"}
	if len(entries) > limit {
		entries = entries[:limit]
		page["nextPageToken"] = entries[limit-1].name
	}
	var items []json.RawMessage
	var prefixes []string
	for _, e := range entries {
		if e.object == nil {
			prefixes = append(prefixes, e.name)
		} else {
			items = append(items, e.object)
		}
	}
	page["items"], page["prefixes"] = items, prefixes
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}

// compose looks at the condition, with no write between that and its own.
func (g *gcs) compose(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.writes.Lock()
	defer g.writes.Unlock()
	if want := r.URL.Query().Get("ifGenerationMatch"); want != "" {
		var now struct{ Generation string }
		status, err := g.ask(r, strings.TrimSuffix(r.URL.EscapedPath(), "/compose"), "", &now)
		if status == http.StatusNotFound {
			now.Generation = "0"
		}
		if err != nil || now.Generation != want {
			refuse(w, http.StatusPreconditionFailed, "conditionNotMet")
			return
		}
	}
	if g.missing(r, body) {
		refuse(w, http.StatusNotFound, "notFound")
		return
	}
	g.forward.ServeHTTP(w, r)
}

// missing reports whether one of the sources is not there, for which
// fake-gcs-server answers with 500.
func (g *gcs) missing(r *http.Request, body []byte) bool {
	var order struct {
		SourceObjects []struct{ Name string }
	}
	if json.Unmarshal(body, &order) != nil {
		return false
	}
	for _, s := range order.SourceObjects {
		var found struct{ Name string }
		if status, err := g.ask(r, "/storage/v1/b/"+g.bucket+"/o/"+url.QueryEscape(s.Name), "", &found); err == nil && status == http.StatusNotFound {
			return true
		}
	}
	return false
}
