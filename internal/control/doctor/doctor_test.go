package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"tine.dev/tine/api"
)

func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no check %q", name)
	return Check{}
}

func TestEveryCheckSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	r := Run(t.Context(), Options{Data: filepath.Join(dir, "a", "b"), Client: api.NewClient(filepath.Join(dir, "t.sock"), "")})
	for _, c := range r.Checks {
		if c.Name == "" || c.Detail == "" {
			t.Errorf("%+v says nothing", c)
		}
		if (c.Status == Fail) && c.Fix == "" {
			t.Errorf("%+v does not say what to do", c)
		}
	}
	if c := find(t, r, "server"); c.Status != Warn || c.Fix == "" {
		t.Errorf("without a server: %+v", c)
	}
	if c := find(t, r, "data directory"); c.Status != OK {
		t.Errorf("a data directory that can be made: %+v", c)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBadDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{file, file + "/x", "/proc/tine"} {
		r := Run(t.Context(), Options{Data: data, Client: api.NewClient(file+".sock", "")})
		if c := find(t, r, "data directory"); c.Status != Fail || c.Fix == "" || r.Failed() == 0 {
			t.Errorf("%s: %+v", data, c)
		}
	}
}

func TestVolatileDevices(t *testing.T) {
	for magic, want := range map[int64][2]bool{0xef53: {}, 0x01021994: {true, false}, 0x6969: {false, true}, 0x794c7630: {true, false}} {
		if name, volatile, remote := fsName(magic); volatile != want[0] || remote != want[1] || name == "" {
			t.Errorf("%#x: %s, %v, %v", magic, name, volatile, remote)
		}
	}
}
