package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// made is a release of this checkout.
func made(t *testing.T) (out, deb, tarball string) {
	t.Helper()
	out = t.TempDir()
	r := release{source: "../..", out: out, goTool: "go"}
	if err := r.run([]string{"amd64"}); err != nil {
		t.Fatal(err)
	}
	for pattern, to := range map[string]*string{"tine_*_amd64.deb": &deb, "tine-*-linux-amd64.tar.gz": &tarball} {
		found, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		*to = found[0]
	}
	return out, deb, tarball
}

// try runs a command, skipping the test if the machine does not have it.
func try(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("there is no %s here", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestReleaseIsReproducible(t *testing.T) {
	one, deb, tarball := made(t)
	two, _, _ := made(t)
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(two, "SHA256SUMS"))
	if err != nil || !bytes.Equal(sums, again) {
		t.Errorf("two releases of one source differ: %v\n%s%s", err, sums, again)
	}
	t.Run("checksums", func(t *testing.T) { try(t, "sh", "-c", "cd "+one+" && sha256sum -c SHA256SUMS") })
	t.Run("tar", func(t *testing.T) { checkTarball(t, tarball) })
	t.Run("deb", func(t *testing.T) { checkDeb(t, deb) })
}

func checkTarball(t *testing.T, tarball string) {
	dir := t.TempDir()
	try(t, "tar", "-xzf", tarball, "-C", dir, "--strip-components=1")
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "tine.service", "tine.toml", "completion.bash"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if out := try(t, filepath.Join(dir, "tine"), "version"); !strings.Contains(out, "tine: ") {
		t.Error(out)
	}
	// Called by its other names it is the helper of mount(8).
	for _, name := range []string{"mount.tine", "mount.fuse.tine"} {
		out, err := exec.Command(filepath.Join(dir, name)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "usage: mount -t tine") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	program, err := os.ReadFile(filepath.Join(dir, "tine"))
	if err != nil {
		t.Fatal(err)
	}
	if source, err := filepath.Abs("../.."); err != nil || bytes.Contains(program, []byte(source+"/")) {
		t.Errorf("the program knows where it was built: %v", err)
	}
	if bytes.Contains(program, []byte("ld-linux")) {
		t.Error("the program is not static")
	}
}

func checkDeb(t *testing.T, deb string) {
	list := try(t, "dpkg-deb", "-c", deb)
	for _, want := range []string{`-rwxr-xr-x root/root +\d+ \S+ \S+ \./usr/bin/tine\n`, `lrwxrwxrwx root/root +0 \S+ \S+ \./usr/sbin/mount\.tine -> \.\./bin/tine\n`,
		`lrwxrwxrwx root/root +0 \S+ \S+ \./usr/sbin/mount\.fuse\.tine -> \.\./bin/tine\n`,
		`-rw-r--r-- root/root +\d+ \S+ \S+ \./usr/lib/systemd/system/tine\.service\n`, `\./etc/tine/tine\.toml\n`, `\./usr/share/doc/tine/copyright\n`,
		`\./usr/share/bash-completion/completions/tine\n`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("there is no %s in\n%s", want, list)
		}
	}
	if info := try(t, "dpkg-deb", "-I", deb); !regexp.MustCompile(` Package: tine\n Version: \d\S+\n Architecture: amd64\n`).MatchString(info) {
		t.Error(info)
	}
	// Unpacked by dpkg itself, into a root of its own.
	root := t.TempDir()
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		try(t, "dpkg", "--root="+root, "--unpack", deb)
		if out := try(t, "dpkg", "--root="+root, "--verify", "tine"); strings.Contains(out, "5") {
			t.Errorf("files differ from their checksums: %s", out)
		}
	} else {
		try(t, "dpkg-deb", "-x", deb, root)
	}
	if out := try(t, filepath.Join(root, "usr/bin/tine"), "version"); !strings.Contains(out, "tine: ") {
		t.Error(out)
	}
	t.Run("unit", func(t *testing.T) { checkUnit(t, root) })
	t.Run("settings", func(t *testing.T) { checkSettings(t, root) })
}

// checkUnit has systemd read the unit, with the program where it is here.
func checkUnit(t *testing.T, root string) {
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/tine.service"))
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "tine.service")
	text := strings.Replace(string(unit), "ExecStart=/usr/bin/tine", "ExecStart="+root+"/usr/bin/tine", 1)
	if err := os.WriteFile(here, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := try(t, "systemd-analyze", "verify", "--man=no", here); out != "" {
		t.Errorf("systemd complains: %s", out)
	}
	// What would give the server a mount namespace of its own would hide its
	// mounts from everybody else.
	for _, never := range []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ReadOnlyPaths", "ReadWritePaths",
		"InaccessiblePaths", "ProtectKernelModules", "ProtectKernelLogs", "ProtectKernelTunables", "ProtectControlGroups", "ProtectProc", "ProtectClock",
		"DynamicUser", "MountFlags", "TemporaryFileSystem", "BindPaths"} {
		if regexp.MustCompile(`(?m)^` + never + `=`).Match(unit) {
			t.Errorf("the unit sets %s", never)
		}
	}
	if !regexp.MustCompile(`(?m)^KillMode=process$`).Match(unit) {
		t.Error("the guard of the mounts would be killed with the server")
	}
}

// checkSettings has the program read the settings, each taken into use.
func checkSettings(t *testing.T, root string) {
	path := filepath.Join(root, "etc/tine/tine.toml")
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) { // dpkg writes it under this name until it is configured
		path += ".dpkg-new"
		b, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`(?m)^# (\w+ = )`).ReplaceAll(b, []byte("$1"))
	file := filepath.Join(t.TempDir(), "tine.toml")
	if err := os.WriteFile(file, append(used, "log_format = \"none\"\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	// The one that is wrong is found last: all others are right.
	out, err := exec.Command(filepath.Join(root, "usr/bin/tine"), "serve", "--config", file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "log_format in") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDebianVersions(t *testing.T) {
	for v, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.4-rc.1": "1.2.4~rc.1", "v1.2.4-0.20260101000000-0123456789ab+dirty": "1.2.4~0.20260101000000.0123456789ab+dirty"} {
		if got := debianVersion(v); got != want {
			t.Errorf("%s: %s, want %s", v, got, want)
		}
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("there is no dpkg here")
	}
	order := []string{"v1.2.3", "v1.2.4-0.20260101000000-0123456789ab", "v1.2.4-rc.1", "v1.2.4", "v1.2.10"}
	for i := range len(order) - 1 {
		try(t, "dpkg", "--compare-versions", debianVersion(order[i]), "lt", debianVersion(order[i+1]))
	}
}

func TestArchives(t *testing.T) {
	when := time.Unix(1700000000, 0)
	es := []entry{{name: "b/c", mode: 0o644, content: []byte("2")}, {name: "a", mode: 0o755, content: []byte("1")}, {name: "b/l", link: "c"}}
	one, err := tarGz(es, "./", when)
	if err != nil {
		t.Fatal(err)
	}
	two, err := tarGz([]entry{es[2], es[1], es[0]}, "./", when)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the order in which files are named changes the archive: %v", err)
	}
	a := ar([]entry{{name: "odd", content: []byte("123")}, {name: "even", content: []byte("12")}}, when)
	want := "!<arch>\nodd             1700000000  0     0     100644  3         `\n123\neven            1700000000  0     0     100644  2         `\n12"
	if string(a) != want {
		t.Errorf("%q", a)
	}
}
