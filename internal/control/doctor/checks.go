package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/tine"
)

func checkKernel() Check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return warn("kernel", err.Error(), "")
	}
	return ok("kernel", unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:])+" "+unix.ByteSliceToString(u.Machine[:]))
}

func checkDevice() Check {
	const name = "/dev/fuse"
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	switch {
	case err == nil:
		_ = f.Close()
		return ok(name, "can be opened")
	case errors.Is(err, os.ErrPermission):
		return fail(name, "no permission to open it", "run the server as root, or give its user access to /dev/fuse")
	case errors.Is(err, os.ErrNotExist):
		return fail(name, "does not exist", "modprobe fuse; in a container give it the device: --device /dev/fuse --cap-add SYS_ADMIN")
	}
	return fail(name, err.Error(), "modprobe fuse")
}

func checkMount() Check {
	r := fusefs.Probe()
	if r.Err != nil {
		fix := tine.HintOf(r.Err)
		if fix == "" {
			fix = "run the server as root; in a container with the capability SYS_ADMIN"
		}
		return fail("mounting", r.Err.Error(), fix)
	}
	if missing := (fusefs.AllFeatures &^ r.Offered).Names(); len(missing) > 0 {
		return warn("mounting", "FUSE "+r.Protocol+" works, without "+strings.Join(missing, ", "),
			"nothing must be done: mounts do the same with more requests; a newer kernel is faster")
	}
	return ok("mounting", "FUSE "+r.Protocol+" works, with every feature that tine uses")
}

// fsNames are the file systems that are worth a word.
func fsName(magic int64) (name string, volatile, remote bool) {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", false, false
	case unix.XFS_SUPER_MAGIC:
		return "xfs", false, false
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", false, false
	case 0x2fc12fc1:
		return "zfs", false, false
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay", true, false
	case unix.TMPFS_MAGIC:
		return "tmpfs", true, false
	case unix.RAMFS_MAGIC:
		return "ramfs", true, false
	case unix.NFS_SUPER_MAGIC:
		return "nfs", false, true
	case unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return "smb", false, true
	case unix.FUSE_SUPER_MAGIC:
		return "fuse", false, true
	}
	return fmt.Sprintf("file system type 0x%x", magic), false, false
}

// lowSpaceBytes is the free space below which a data device deserves a
// warning.
const lowSpaceBytes = 5 << 30

// checkData looks at the data directory, or at where it would be made.
func checkData(dir string, serving bool) []Check {
	const name = "data directory"
	at := dir
	for {
		fi, err := os.Stat(at)
		if err == nil {
			if !fi.IsDir() {
				return []Check{fail(name, at+" is not a directory", "choose another one with --data")}
			}
			break
		}
		up := filepath.Dir(at)
		if !errors.Is(err, os.ErrNotExist) || up == at {
			return []Check{fail(name, err.Error(), "choose another one with --data")}
		}
		at = up
	}
	detail := dir
	if at != dir {
		detail += " (made when the server starts)"
	}
	out := []Check{ok(name, detail)}
	if !serving {
		if err := tryWrite(at); err != nil {
			out[0] = fail(name, err.Error(), "make it writable, or choose another one with --data")
		}
	}
	return append(out, checkDevices(at)...)
}

// tryWrite flushes a file in the directory and removes it.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".tine-doctor-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		return err
	}
	return f.Sync()
}

func checkDevices(dir string) []Check {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return []Check{warn("data device", err.Error(), "")}
	}
	name, volatile, remote := fsName(int64(st.Type))
	device := ok("data device", name)
	switch {
	case volatile:
		device = warn("data device", name+": what is stored there does not survive a reboot or the container", "put the data directory on a disk, with --data")
	case remote:
		device = warn("data device", name+": flushes and locks may not mean what they should", "put the data directory on a local disk, with --data")
	}
	free := int64(st.Bavail) * st.Bsize
	total := int64(st.Blocks) * st.Bsize
	space := ok("free space", fmt.Sprintf("%s of %s", gib(free), gib(total)))
	if free < lowSpaceBytes {
		space = warn(space.Name, space.Detail, "free some space; when it runs out disks answer ENOSPC")
	}
	return []Check{device, space}
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func checkMemory() Check {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return warn("memory", err.Error(), "")
	}
	defer f.Close()
	kib := map[string]int64{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) >= 2 {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				kib[strings.TrimSuffix(fields[0], ":")] = n
			}
		}
	}
	available := kib["MemAvailable"] << 10
	c := ok("memory", fmt.Sprintf("%s of %s available", gib(available), gib(kib["MemTotal"]<<10)))
	if available < 512<<20 {
		return warn(c.Name, c.Detail, "give the server less cache (--cache-bytes, --memory-limit), or the machine more memory")
	}
	return c
}

// checkCgroup tells which control groups there are and what they allow this
// process.
func checkCgroup() Check {
	const name = "control groups"
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
			return ok(name, "version 1")
		}
		return warn(name, "none are mounted", "nothing must be done: a limit that a container sets is then not shown here")
	}
	detail := "version 2: " + strings.TrimSpace(string(controllers))
	if limit, at := cgroupMemoryLimit(); limit != "" && limit != "max" {
		detail += "; this process may use " + limit + " bytes of memory (" + at + ")"
	}
	return ok(name, detail)
}

func cgroupMemoryLimit() (limit, at string) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			v, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", rest, "memory.max"))
			if err == nil {
				return strings.TrimSpace(string(v)), rest
			}
		}
	}
	return "", ""
}

// fewFiles is a limit of open files that busy mounts may meet.
const fewFiles = 4096

func checkOpenFiles() Check {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return warn("open files", err.Error(), "")
	}
	c := ok("open files", fmt.Sprintf("at most %d", l.Max))
	if l.Max < fewFiles {
		return warn(c.Name, c.Detail, "raise the limit: ulimit -Hn, or LimitNOFILE= of the service")
	}
	return c
}

func checkServer(ctx context.Context, o Options) (*api.Server, Check) {
	const name = "server"
	s, err := o.Client.Server(ctx)
	if err != nil {
		fix := ""
		var e *api.Error
		if errors.As(err, &e) {
			fix = e.Hint
		}
		return nil, warn(name, err.Error(), fix)
	}
	detail := fmt.Sprintf("version %s, process %d, up since %s, on %s", s.Version.Version, s.PID, s.Started.Local().Format("2006-01-02 15:04:05"), s.Socket)
	if s.Version.Version != o.Version.Version || s.Version.Commit != o.Version.Commit {
		return &s, warn(name, detail+"; this program is version "+o.Version.Version+" of another commit", "restart the server with the new program")
	}
	return &s, ok(name, detail)
}

// storeTime bounds the look at one store.
const storeTime = 10 * time.Second

// checkStores has the server try each of its stores.
func checkStores(ctx context.Context, c *api.Client) []Check {
	stores, err := c.Stores(ctx)
	if err != nil {
		return []Check{warn("stores", err.Error(), "")}
	}
	var out []Check
	for _, s := range stores {
		out = append(out, checkStore(ctx, c, s))
	}
	return out
}

func checkStore(ctx context.Context, c *api.Client, s api.Store) Check {
	name := "store " + s.Name
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	found, err := c.CheckStore(ctx, s.Name)
	if err != nil {
		return warn(name, s.URL+": "+err.Error(), "tine store check "+s.Name)
	}
	detail := s.URL
	for _, st := range found.Steps {
		if st.Error != nil {
			fix := st.Error.Hint
			if fix == "" {
				fix = "tine store check " + s.Name
			}
			return warn(name, s.URL+": "+st.Name+": "+st.Error.Message, fix)
		}
		if st.Name == "write" || st.Name == "read" {
			detail += fmt.Sprintf(", %s %.3g ms", st.Name, st.Milli)
		}
	}
	switch {
	case s.Error != nil:
		return warn(name, detail+": "+s.Error.Message, s.Error.Hint)
	case s.Lost > 0:
		return warn(name, fmt.Sprintf("%s; %d of its disks are served elsewhere", detail, s.Lost), "tine disk ls; tine disk rm --purge NAME forgets one here")
	}
	return ok(name, detail)
}
