package httpapi

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// Peer is the user at the other end of a connection, as the kernel tells it.
type Peer struct{ UID uint32 }

// Principal is the peer's name in records.
func (p Peer) Principal() string { return "uid:" + strconv.FormatUint(uint64(p.UID), 10) }

type peerKey struct{}

// WithPeer is an http.Server's ConnContext: it notes who has connected.
// Connections of which the kernel tells nothing carry no peer and are refused
// by every call.
func WithPeer(ctx context.Context, conn net.Conn) context.Context {
	uid, err := api.PeerUID(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, Peer{uid})
}

func peerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// OnlyPeers serves root and the given user, and refuses everybody else. The
// socket's mode says the same; this holds also when someone changes the mode.
func OnlyPeers(uid uint32, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := peerOf(r.Context())
		if !ok || (p.UID != 0 && p.UID != uid) {
			writeError(w, tine.Errorf(tine.KindAccess, "this server serves only root and uid %d", uid).
				WithHint("run the command as that user"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
