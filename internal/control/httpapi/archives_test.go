package httpapi

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tine.dev/tine/api"
)

func archiveOf(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestArchives(t *testing.T) {
	c := serve(t)
	odd := url.QueryEscape("a\xff b")
	for _, x := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/disks/work/import-tar?existing=true", archiveOf(t, "f", "x"), 404, `"kind":"not_found"`},
		{"POST", "/v1/disks/work/import-tar", "no archive at all", 422, `"kind":"invalid"`},
		{"GET", "/v1/disks/work", "", 404, `"kind":"not_found"`},
		{"POST", "/v1/disks/work/import-tar", archiveOf(t, "a\xff b", "hello"), 200, `{"done":{"disk":{`},
		{"POST", "/v1/disks/work/import-tar?path=/sub", archiveOf(t, "f", "x"), 200, `"checkpoint":"before-import-1"`},
		{"POST", "/v1/disks/work/import-tar?checkpoint=false", archiveOf(t, "g", "x"), 200, `"files":1`},
		{"POST", "/v1/disks/work/import-tar", archiveOf(t, "../g", "x"), 422, `tine rollback work before-import-2`},
		{"GET", "/v1/disks/work/stat?path=" + odd, "", 200, `"type":"file","mode":416,`},
		{"GET", "/v1/disks/work/stat?path=/none", "", 404, `"kind":"not_found"`},
		{"GET", "/v1/disks/work/stat", "", 200, `"type":"directory"`},
		{"GET", "/v1/disks/work/export-tar?path=/none", "", 404, `"kind":"not_found"`},
		{"GET", "/v1/disks/work/export-tar?checkpoint=none", "", 404, `"kind":"not_found"`},
		{"GET", "/v1/disks/none/export-tar", "", 404, `"kind":"not_found"`},
		{"PUT", "/v1/disks/work/file?path=/sub/new&mode=384", strings.Repeat("y", 3<<20), 200, `{"bytes":3145728}`},
		{"PUT", "/v1/disks/work/file?path=/sub", "x", 422, `"kind":"is_a_directory"`},
		{"PUT", "/v1/disks/work/file?path=/sub/x&mode=99999", "x", 422, `"kind":"invalid"`},
		{"PUT", "/v1/disks/work/file", "x", 422, `"kind":"invalid"`},
		{"PUT", "/v1/disks/work/quota", `{"bytes":5}`, 200, `"quota":{"bytes":5},"used_bytes":3145735`},
		{"PUT", "/v1/disks/work/quota", `{"bytes":-5}`, 422, `"kind":"invalid"`},
		{"PUT", "/v1/disks/work/file?path=/sub/more", "x", 507, `"kind":"quota"`},
		{"GET", "/v1/disks/work/quota", "", 200, `"used_inodes":6`},
		{"POST", "/v1/disks", `{"name":"small","quota":{"inodes":7}}`, 201, `"quota":{"inodes":7}`},
	} {
		status, got, _ := ask(t, c, x.method, x.path, x.body)
		if status != x.status || !strings.Contains(got, x.says) {
			t.Errorf("%s %s: %d %.600s; want %d and %q", x.method, x.path, status, got, x.status, x.says)
		}
	}
	checkExport(t, c, "/v1/disks/work/export-tar?path="+odd)
}

// checkExport reads an export of one file of 5 bytes.
func checkExport(t *testing.T, c *http.Client, path string) {
	t.Helper()
	resp, err := c.Get("http://tine" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := tar.NewReader(resp.Body)
	h, err := r.Next()
	if err != nil || h.Name != "a\xff b" || h.Size != 5 || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("%+v, %v, %v", h, err, resp.Header)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	text, err := url.QueryUnescape(resp.Trailer.Get(api.ExportTrailer))
	var done api.ExportDone
	if err != nil || json.Unmarshal([]byte(text), &done) != nil || done.Totals.Files != 1 || done.Error != nil {
		t.Errorf("the trailer is %q, %v", text, err)
	}
}

// TestTrailersAreSmall: whatever there is to say, a client can read the end of
// an export, and always whether it failed.
func TestTrailersAreSmall(t *testing.T) {
	done := api.ExportDone{Skipped: 1000, Error: &api.Error{Kind: "io", Message: strings.Repeat("\u00fc", 5000)}}
	for i := range 100 {
		done.Notes = append(done.Notes, api.ImportNote{Path: fmt.Sprintf("%d\xff%s", i, strings.Repeat("n", 300)), Note: "a note"})
	}
	s := trailer(done)
	text, err := url.QueryUnescape(s)
	var got api.ExportDone
	if err != nil || len(s) > maxTrailerBytes || json.Unmarshal([]byte(text), &got) != nil || got.Skipped != 1000 || got.Error == nil || got.Error.Kind != "io" {
		t.Errorf("%d bytes: %s, %v", len(s), text, err)
	}
	done.Error = nil
	if text, err := url.QueryUnescape(trailer(done)); err != nil || json.Unmarshal([]byte(text), &got) != nil || len(got.Notes) == 0 {
		t.Errorf("%s, %v", text, err)
	}
}
