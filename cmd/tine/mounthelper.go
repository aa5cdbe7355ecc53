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
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// What mount(8) calls, by the type of the file system: symbolic links to this
// program, in /sbin. A remount that names only the directory goes by the type that
// the kernel's table has.
const (
	mountHelperName   = "mount.tine"      // mount -t tine, and lines of fstab with the type tine
	remountHelperName = "mount.fuse.tine" // mount -o remount DIR
)

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
	remount   bool
	readOnly  bool
	writable  bool // rw is named; without it and ro a remount leaves that as it is
	suid, dev bool
	noExec    bool
	fake      bool // do all but mount
	sloppy    bool // leave out options that are not known
	verbose   bool
}

const mountHelperUsage = "usage: mount -t tine DISK[@CHECKPOINT] DIR [-o ro,remount,socket=PATH,...]"

// mountHelper is the program called as mount.tine. It returns an exit code of
// mount(8).
func mountHelper(ctx context.Context, env environment, args []string) int {
	complain := func(err error) {
		e := describe(err)
		fmt.Fprintf(env.stderr, "mount.tine: %s\n", indented(strings.TrimSpace(e.Message)))
		if e.Hint != "" {
			fmt.Fprintf(env.stderr, "      %s\n", indented(e.Hint))
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
	if r.remount {
		return helpRemount(ctx, client, r)
	}
	waits, err := waitedFor(r.dir)
	if err != nil {
		return err
	}
	m, err := client.Mount(ctx, api.NewMount{Ref: r.spec, Dir: r.dir, ReadOnly: r.readOnly, External: true, Staged: waits,
		MountOptions: api.MountOptions{AllowSUID: r.suid, AllowDev: r.dev, NoExec: r.noExec}})
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

// helpRemount asks the server to change what is mounted; of the disk's name
// nothing depends, as for any other file system. The server changes the file
// system and its own mount of it. The one that the caller sees may be another: an
// automounter's, or one in another mount namespace.
func helpRemount(ctx context.Context, client *api.Client, r mountRequest) error {
	if real, err := filepath.EvalSymlinks(r.dir); err == nil {
		r.dir = real
	}
	there, err := keeper.IsTineMount(r.dir)
	if err != nil {
		return err
	}
	if !there {
		return tine.Errorf(tine.KindNotFound, "no tine disk is mounted on %s", r.dir)
	}
	change := api.MountChange{AllowSUID: &r.suid, AllowDev: &r.dev, NoExec: &r.noExec}
	if r.readOnly || r.writable {
		change.ReadOnly = &r.readOnly
	}
	m, err := client.ChangeMount(ctx, r.dir, change)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOATIME)
	for _, f := range []struct {
		set  bool
		flag uintptr
	}{{m.ReadOnly, unix.MS_RDONLY}, {!m.AllowSUID, unix.MS_NOSUID}, {!m.AllowDev, unix.MS_NODEV}, {m.NoExec, unix.MS_NOEXEC}} {
		if f.set {
			flags |= f.flag
		}
	}
	return oserr.Wrap(unix.Mount("", r.dir, "", flags, ""), "change what is mounted on %s", r.dir)
}

func kindIs(err error, k tine.ErrorKind) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Kind == k.String()
}

// mountedThere reports whether just what is asked for is mounted already, and
// permits no more.
func mountedThere(ctx context.Context, client *api.Client, r mountRequest) bool {
	ms, err := client.Mounts(ctx)
	return err == nil && slices.ContainsFunc(ms, func(m api.Mount) bool {
		return m.Ref == r.spec && m.Dir == r.dir && m.State == "mounted" && (m.ReadOnly || !r.readOnly) &&
			(r.suid || !m.AllowSUID) && (r.dev || !m.AllowDev) && (m.NoExec || !r.noExec)
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
// anyway: a disk keeps no times of access.
var ignoredOptions = []string{"defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "async", "noatime", "relatime", "norelatime", "nodiratime", "diratime", "lazytime", "nolazytime", "nostrictatime", "silent", "loud", "noiversion", "nomand"}

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
			case 'r', 'w':
				r.readOnly, r.writable = flag == 'r', flag == 'w'
			case 'n':
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

// tableOptions are FUSE's own, which mount(8) takes from the kernel's table and
// adds to what is asked for when a remount names only the directory.
var tableOptions = []string{"user_id", "group_id", "default_permissions", "allow_other", "max_read", "blksize"}

// apply reads the options of -o; of ro and rw, and of exec and noexec, the last
// counts.
//
// suid and dev must be asked for, for what is on a disk is not the machine's own.
// mount(8) does not pass these two words on: for most file systems they are so
// anyway. What it does pass on is what it does not know, so there are allow_suid
// and allow_dev. It puts what it knows first, so of nosuid and allow_suid the order
// says nothing: nosuid counts. In options that come from the table, though, it is
// the other way round: what is not denied there is so, and what is asked for was
// not in the table before.
func (r *mountRequest) apply(options []string) error {
	var suid, noSUID, dev, noDev, table bool
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch {
		case o == "" || slices.Contains(ignoredOptions, o) || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") || name == "comment":
		case o == "ro", o == "rw":
			r.readOnly, r.writable = o == "ro", o == "rw"
		case o == "suid", o == "allow_suid":
			suid = true
		case o == "dev", o == "allow_dev":
			dev = true
		case o == "nosuid":
			noSUID = true
		case o == "nodev":
			noDev = true
		case o == "exec", o == "noexec":
			r.noExec = o == "noexec"
		case name == "socket" && filepath.IsAbs(value):
			r.socket = value
		case o == "remount":
			r.remount = true
		case slices.Contains(tableOptions, name) && slices.Contains(options, "remount"):
			table = true
		case !r.sloppy:
			return tine.Errorf(tine.KindInvalid, "the mount option %q is not supported", o).
				WithHint("those that are: ro, rw, remount, noexec, allow_suid, allow_dev, socket=/ABSOLUTE/PATH, and what fstab and systemd add; unless allowed, a mount is nosuid,nodev")
		}
	}
	r.suid, r.dev = suid && !noSUID, dev && !noDev
	if table {
		r.suid, r.dev = suid || !noSUID, dev || !noDev
	}
	return nil
}
