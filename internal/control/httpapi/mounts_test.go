package httpapi

import (
	"context"
	"os"
	"testing"

	"tine.dev/tine/internal/tine"
)

// TestWhoMayTrustContent: set-user-ID programs and device nodes of a disk are for
// root to allow, on its own server, and for nobody whom the kernel has not named.
func TestWhoMayTrustContent(t *testing.T) {
	for _, c := range []struct {
		ctx   context.Context
		asked bool
		want  bool
	}{
		{t.Context(), false, true},
		{t.Context(), true, false},
		{context.WithValue(t.Context(), peerKey{}, Peer{5}), false, true},
		{context.WithValue(t.Context(), peerKey{}, Peer{5}), true, false},
		{context.WithValue(t.Context(), peerKey{}, Peer{0}), true, os.Geteuid() == 0},
	} {
		p, named := peerOf(c.ctx)
		err := mayTrust(c.ctx, c.asked)
		if (err == nil) != c.want || err != nil && (tine.KindOf(err) != tine.KindAccess || tine.HintOf(err) == "") {
			t.Errorf("peer %v (%v), asked %v: %v", p, named, c.asked, err)
		}
	}
}
