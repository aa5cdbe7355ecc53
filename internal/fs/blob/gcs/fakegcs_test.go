package gcs_test

import (
	"fmt"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/gcs"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

func open(t testing.TB, opt gcs.Options) *gcs.Store {
	t.Helper()
	s, err := gcs.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// maker makes places that are prefixes in one bucket.
func maker(opt gcs.Options, name string) blobtest.Maker {
	return blobtest.Prefixes(name, func(t testing.TB, prefix string) blob.Driver {
		opt := opt
		opt.Prefix = prefix
		return open(t, opt)
	})
}

func TestFakeGCS(t *testing.T) {
	server := servers.FakeGCS(t, "bucket")
	opt := gcs.Options{Bucket: "bucket", Endpoint: server.Endpoint, Anonymous: true}
	mk := maker(opt, "place")
	t.Run("Contract", func(t *testing.T) { blobtest.Run(t, mk, blob.Options{}) })
	t.Run("Driver", func(t *testing.T) { blobtest.RunDriver(t, mk) })
	proxy := faultproxy.Start(t, server.Endpoint, faultproxy.GCS())
	behind := opt
	behind.Endpoint = proxy.URL
	t.Run("Faults", func(t *testing.T) { blobtest.RunFaults(t, proxy, maker(behind, "faults")) })
	t.Run("Reach", func(t *testing.T) {
		blobtest.RunReach(t, server.Endpoint, func(_ testing.TB, endpoint string, web web.Options) (blob.Driver, error) {
			opt := opt
			opt.Endpoint, opt.Web = endpoint, web
			return gcs.Open(opt)
		})
	})
	t.Run("NoBucket", func(t *testing.T) {
		opt := opt
		opt.Bucket = "not-there"
		blobtest.EveryCall(t, open(t, opt), "upload", tine.KindUnavailable)
	})
	t.Run("ManyParts", func(t *testing.T) { manyParts(t, mk(t)(t)) })
}

// manyParts: more parts than one request composes.
func manyParts(t *testing.T, d blob.Driver) {
	defer d.Close()
	var data []byte
	for i := range 70 {
		data = fmt.Appendf(data, "%9d\n", i)
	}
	up, err := d.Upload(t.Context(), "k", blob.Head{Size: int64(len(data)), CRC32C: blob.Checksum(data), Mark: blob.Mark{1}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 69; i >= 0; i-- {
		p := data[10*i : 10*i+10]
		if err := up.Part(t.Context(), i+1, int64(10*i), p, blob.Checksum(p)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := up.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, info, err := d.Get(t.Context(), "k", blob.GetOptions{})
	if err != nil || string(got) != string(data) || info.CRC32C != blob.Checksum(data) || info.Mark != (blob.Mark{1}) {
		t.Errorf("composed %+v: %q, %v", info, got, err)
	}
	if _, err := up.Complete(t.Context()); tine.KindOf(err) != tine.KindStale {
		t.Errorf("completed again: %v", err)
	}
}
