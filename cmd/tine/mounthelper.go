package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// mountHelperName is what mount(8) calls for `mount -t tine` and for lines of
// fstab with the type tine: a symbolic link to this program, in /sbin.
const mountHelperName = "mount.tine"

// The exit codes of mount(8).
const (
	mountOK     = 0
	mountUsage  = 1
	mountFailed = 32
)

// helperWait bounds how long a server that is starting is waited for: at boot
// the mounts of fstab may come before it is ready.
const helperWait = 80 * time.Second

// mountRequest is a command line of mount(8)'s.
type mountRequest struct {
	spec, dir string
	socket    string
	readOnly  bool
	fake      bool // do all but mount
	sloppy    bool // leave out options that are not known
	verbose   bool
}

const mountHelperUsage = "usage: mount -t tine DISK[@CHECKPOINT] DIR [-o ro,socket=PATH,...]"

// mountHelper is the program called as mount.tine. It returns an exit code of
// mount(8).
func mountHelper(ctx context.Context, env environment, args []string) int {
	complain := func(err error) {
		fmt.Fprintf(env.stderr, "mount.tine: %s\n", strings.TrimSpace(err.Error()))
		var e *api.Error
		if errors.As(err, &e) && e.Hint != "" {
			fmt.Fprintf(env.stderr, "      %s\n", e.Hint)
		} else if hint := tine.HintOf(err); hint != "" {
			fmt.Fprintf(env.stderr, "      %s\n", hint)
		}
	}
	r, err := parseMount(args)
	if err != nil {
		complain(err)
		return mountUsage
	}
	if r.fake {
		return mountOK
	}
	c := &cli{env: env, socket: r.socket}
	ctx, cancel := context.WithTimeout(ctx, helperWait)
	defer cancel()
	if err := c.helpMount(ctx, r); err != nil {
		complain(err)
		return mountFailed
	}
	if r.verbose {
		fmt.Fprintf(env.stdout, "mount.tine: %s mounted on %s\n", r.spec, r.dir)
	}
	return mountOK
}

// helpMount asks the server to mount, or, where an automounter waits, shows
// there what the server has mounted elsewhere.
func (c *cli) helpMount(ctx context.Context, r mountRequest) error {
	client := c.client()
	defer client.Close()
	if err := c.awaitServer(ctx, client); err != nil {
		return err
	}
	waits, err := waitedFor(r.dir)
	if err != nil {
		return err
	}
	m, err := client.Mount(ctx, api.NewMount{Ref: r.spec, Dir: r.dir, ReadOnly: r.readOnly, External: true, Staged: waits})
	if kindIs(err, tine.KindBusy) && mountedThere(ctx, client, r) {
		return nil // the server has brought it back itself
	}
	if err != nil || m.Own == "" {
		return err
	}
	if err := unix.Mount(m.Own, r.dir, "", unix.MS_BIND, ""); err != nil {
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(tine.Errorf(tine.KindIO, "show %s on %s: %w", r.spec, r.dir, err), client.Unmount(cleanUp, r.dir, true))
	}
	return nil
}

func kindIs(err error, k tine.ErrorKind) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Kind == k.String()
}

// mountedThere reports whether just what is asked for is mounted already.
func mountedThere(ctx context.Context, client *api.Client, r mountRequest) bool {
	ms, err := client.Mounts(ctx)
	return err == nil && slices.ContainsFunc(ms, func(m api.Mount) bool {
		return m.Ref == r.spec && m.Dir == r.dir && m.State == "mounted" && (m.ReadOnly || !r.readOnly)
	})
}

// awaitServer waits for a server that listens but is not ready.
func (c *cli) awaitServer(ctx context.Context, client *api.Client) error {
	for {
		_, err := client.Server(ctx)
		if !noServer(err) {
			return err
		}
		conn, dialErr := net.Dial("unix", c.socketPath())
		if dialErr != nil {
			return err
		}
		_ = conn.Close()
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// waitedFor reports whether an automounter waits at the directory. The table
// is asked, not the directory.
func waitedFor(dir string) (bool, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, tine.Errorf(tine.KindIO, "list the mounts: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) >= 5 && octal.Replace(f[4]) == dir && strings.HasPrefix(after, "autofs ") {
			return true, nil
		}
	}
	return false, nil
}

// octal undoes the kernel's escapes in the table of mounts.
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// ignoredOptions are what mount(8) and fstab say to others, or what holds
// anyway: a disk keeps no times of access, and is nosuid and nodev.
var ignoredOptions = []string{"defaults", "rw", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "nosuid", "nodev", "exec",
	"async", "noatime", "relatime", "norelatime", "nodiratime", "diratime", "lazytime", "nolazytime", "nostrictatime", "silent", "loud", "noiversion", "nomand"}

// parseMount reads SPEC DIR [-sfnvrw] [-o OPTIONS] [-t TYPE].
func parseMount(args []string) (r mountRequest, err error) {
	bad := func(format string, a ...any) (mountRequest, error) {
		return r, tine.Errorf(tine.KindInvalid, format, a...).WithHint(mountHelperUsage)
	}
	var plain, options []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			plain = append(plain, a)
			continue
		}
		for k, flag := range a[1:] {
			switch flag {
			case 'o', 't', 'N':
				value := a[k+2:]
				if value == "" {
					if i++; i == len(args) {
						return bad("-%c needs a value", flag)
					}
					value = args[i]
				}
				if flag == 'N' {
					return bad("mounting in another namespace is not possible: the server mounts in its own")
				}
				if flag == 'o' {
					options = append(options, strings.Split(value, ",")...)
				}
			case 's':
				r.sloppy = true
			case 'f':
				r.fake = true
			case 'v':
				r.verbose = true
			case 'r':
				r.readOnly = true
			case 'n', 'w':
			default:
				return bad("there is no option -%c", flag)
			}
			if flag == 'o' || flag == 't' {
				break
			}
		}
	}
	if len(plain) != 2 {
		return bad("a disk and a directory must be named")
	}
	r.spec = strings.TrimPrefix(plain[0], "tine:") // as the kernel's table has it
	if strings.Contains(r.spec, "/") {
		return bad("%q is not a disk; a disk named as a file here is must be written tine:DISK", r.spec)
	}
	if r.dir, err = filepath.Abs(plain[1]); err != nil {
		return bad("find the current directory: %w", err)
	}
	return r, r.apply(options)
}

// apply reads the options of -o.
func (r *mountRequest) apply(options []string) error {
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch {
		case o == "" || slices.Contains(ignoredOptions, o) || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") || name == "comment":
		case o == "ro":
			r.readOnly = true
		case name == "socket" && filepath.IsAbs(value):
			r.socket = value
		case o == "remount":
			return tine.Errorf(tine.KindInvalid, "a mount cannot be changed while it is there").WithHint("unmount it, then mount it again")
		case !r.sloppy:
			return tine.Errorf(tine.KindInvalid, "the mount option %q is not supported", o).
				WithHint("those that are: ro, rw, socket=/ABSOLUTE/PATH, and what fstab and systemd add; every mount is nosuid,nodev")
		}
	}
	return nil
}
