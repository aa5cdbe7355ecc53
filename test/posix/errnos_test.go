package posix

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// manual has the errors that the manual page of each call lists (man-pages
// 6.03). One page stands for all calls on it: open for openat and creat, read
// for pread, stat for lstat, fstat and fstatat, and so on. Where a page says
// that all errors of stat(2) can occur too, they are in the list.
var manual = map[string]string{
	"open":            "EACCES EBADF EBUSY EDQUOT EEXIST EFAULT EFBIG EOVERFLOW EINTR EINVAL EISDIR ELOOP EMFILE ENAMETOOLONG ENFILE ENODEV ENXIO ENOENT ENOMEM ENOSPC ENOTDIR EOPNOTSUPP EPERM EROFS ETXTBSY EWOULDBLOCK",
	"read":            "EAGAIN EBADF EFAULT EINTR EINVAL EIO EISDIR",
	"write":           "EAGAIN EBADF EDESTADDRREQ EDQUOT EFAULT EFBIG EINTR EINVAL EIO ENOSPC EPERM EPIPE",
	"readv":           "EINVAL EOPNOTSUPP",
	"close":           "EBADF EINTR EIO ENOSPC EDQUOT",
	"lseek":           "EBADF EINVAL ENXIO EOVERFLOW ESPIPE",
	"truncate":        "EACCES EFAULT EFBIG EINTR EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS ETXTBSY EBADF",
	"fallocate":       "EBADF EFBIG EINTR EINVAL EIO ENODEV ENOSPC ENOSYS EOPNOTSUPP EPERM ESPIPE ETXTBSY",
	"fsync":           "EBADF EINTR EIO ENOSPC EROFS EINVAL EDQUOT",
	"sync":            "EBADF EIO ENOSPC EDQUOT",
	"link":            "EACCES EDQUOT EEXIST EFAULT EIO ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR EPERM EROFS EXDEV EBADF EINVAL",
	"unlink":          "EACCES EBUSY EFAULT EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EPERM EROFS EBADF EINVAL",
	"rename":          "EACCES EBUSY EDQUOT EFAULT EINVAL EISDIR ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR ENOTEMPTY EPERM EROFS EXDEV EBADF EEXIST",
	"mkdir":           "EACCES EBADF EDQUOT EEXIST EFAULT EINVAL ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR EPERM EROFS",
	"rmdir":           "EACCES EBUSY EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR ENOTEMPTY EEXIST EPERM EROFS",
	"symlink":         "EACCES EBADF EDQUOT EEXIST EFAULT EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR EPERM EROFS",
	"readlink":        "EACCES EBADF EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
	"mknod":           "EACCES EBADF EDQUOT EEXIST EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR EPERM EROFS",
	"chmod":           "EACCES EBADF EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR ENOTSUP EPERM EROFS",
	"chown":           "EACCES EBADF EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EPERM EROFS",
	"utimensat":       "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS ESRCH",
	"access":          "EACCES EBADF EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EPERM EROFS ETXTBSY",
	"chdir":           "EACCES EFAULT EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EBADF",
	"stat":            "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EOVERFLOW",
	"statx":           "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
	"statfs":          "EACCES EBADF EFAULT EINTR EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOSYS ENOTDIR EOVERFLOW",
	"getdents":        "EBADF EFAULT EINVAL ENOENT ENOTDIR",
	"fcntl":           "EACCES EAGAIN EBADF EBUSY EDEADLK EFAULT EINTR EINVAL EMFILE ENOLCK ENOTDIR EPERM",
	"flock":           "EBADF EINTR EINVAL ENOLCK EWOULDBLOCK",
	"mmap":            "EACCES EAGAIN EBADF EEXIST EINVAL ENFILE ENODEV ENOMEM EOVERFLOW EPERM ETXTBSY",
	"msync":           "EBUSY EINVAL ENOMEM",
	"copy_file_range": "EBADF EFBIG EINVAL EIO EISDIR ENOMEM ENOSPC EOPNOTSUPP EOVERFLOW EPERM ETXTBSY EXDEV",
	"sendfile":        "EAGAIN EBADF EFAULT EINVAL EIO ENOMEM EOVERFLOW ESPIPE",
	"splice":          "EAGAIN EBADF EINVAL ENOMEM ESPIPE",
	"setxattr":        "EDQUOT EEXIST ENODATA ENOSPC ENOTSUP EPERM ERANGE EACCES EBADF EFAULT ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EROFS",
	"getxattr":        "E2BIG ENODATA ENOTSUP ERANGE EACCES EBADF EFAULT ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
	"listxattr":       "E2BIG ENOTSUP ERANGE EACCES EBADF EFAULT ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
	"removexattr":     "ENODATA ENOTSUP EACCES EBADF EFAULT ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EROFS",
}

// Reasons that hold for many calls.
const (
	noMemory    = "the kernel would have to be out of memory"
	brokenDisk  = "the device would have to fail; test/crash and the engine's own tests do that"
	noQuota     = "needs disk quotas, which belong to the set-up of a file system and not to a directory"
	never       = "Linux does not return it"
	only32      = "only for 32-bit programs"
	notForFiles = "not for the regular files and directories of a file system"
	swapFile    = "only for an active swap file, or a file that the kernel is reading in as its own code"
)

// unreachable says why no case shows an error. The entry "*" is for every call
// that has no entry of its own for the error.
var unreachable = map[string]map[string]string{
	"*": {
		"ENOMEM": noMemory,
		"EIO":    brokenDisk,
		"EDQUOT": noQuota,
		"ENFILE": "the limit is the whole machine's, and root is exempt",
		"ENOLCK": "the kernel would have to be out of memory, or the lock manager of a network file system gone",
	},
	"open": {
		"EBUSY":      "only for a block device that is in use",
		"EFBIG":      only32,
		"EOVERFLOW":  only32,
		"ENODEV":     "a kernel bug, says the page; ENXIO is returned",
		"EOPNOTSUPP": "only where O_TMPFILE is missing, which is a failure of the cases about O_TMPFILE",
	},
	"write":     {"EDESTADDRREQ": "only for sockets", "EPERM": "only for sealed memory, memfd_create(2)"},
	"close":     {"EINTR": never + " for files", "ENOSPC": never + " but on NFS", "EDQUOT": never + " but on NFS"},
	"lseek":     {"EOVERFLOW": only32 + "; for others it is EINVAL"},
	"truncate":  {"EINTR": never + " for files"},
	"fallocate": {"EINTR": "a signal would have to come in the middle of a long allocation", "ENOSYS": "only where the kernel lacks fallocate", "ETXTBSY": swapFile},
	"fsync":     {"EINTR": never + " for files", "EROFS": never, "ENOSPC": never + " but on NFS", "EDQUOT": never + " but on NFS"},
	"sync":      {"ENOSPC": never + " but on NFS", "EDQUOT": never + " but on NFS"},
	"rename":    {"EMLINK": "a directory would need as many subdirectories as a file may have names, where there is a limit at all"},
	"mkdir": {
		"EINVAL": "only where a file system forbids names, which no POSIX one does",
		"EMLINK": "a directory would need as many subdirectories as a file may have names, where there is a limit at all",
		"EPERM":  "only where there are no directories to be made",
	},
	"rmdir":     {"EEXIST": "another name of ENOTEMPTY, which Linux returns"},
	"symlink":   {"EPERM": "only where there are no symbolic links"},
	"link":      {"ENOMEM": noMemory},
	"utimensat": {"ESRCH": never + ": the page says that it is for descriptors as links in /proc that are gone"},
	"access":    {"EPERM": "only for an immutable file, which is EACCES or EPERM from chmod on", "ETXTBSY": never + " any more"},
	"stat":      {"EOVERFLOW": only32},
	"statfs":    {"EINTR": never + " for local files", "ENOSYS": "only where the file system lacks it", "EOVERFLOW": only32},
	"fcntl":     {"EACCES": "another name of EAGAIN, which Linux returns"},
	"mmap": {
		"EAGAIN":    "about the limit of locked memory, not about files",
		"EOVERFLOW": only32,
		"ETXTBSY":   "MAP_DENYWRITE is ignored",
	},
	"copy_file_range": {"EOPNOTSUPP": "the kernel copies itself where the file system does not", "ETXTBSY": swapFile},
	"getxattr":        {"E2BIG": "the value would have to be larger than setxattr allows"},
	"listxattr":       {"E2BIG": "needs names of more than 64 KiB in all, more than ext4 keeps", "ENOTSUP": "only where there are no extended attributes"},
}

// errnos maps each call of the manual and each of its errors to the names of
// the cases that show it, or to the reason why none can.
func errnos() map[string]map[string][]string {
	shown := map[string]map[string][]string{}
	for _, b := range slices.Concat(behaviours(), fullCases) {
		if b.errno == 0 {
			continue
		}
		if shown[b.call] == nil {
			shown[b.call] = map[string][]string{}
		}
		for _, name := range spellings(unix.ErrnoName(b.errno)) {
			shown[b.call][name] = append(shown[b.call][name], b.name())
		}
	}
	all := map[string]map[string][]string{}
	for call, list := range manual {
		all[call] = map[string][]string{}
		for name := range strings.FieldsSeq(list) {
			reason := unreachable[call][name]
			if reason == "" && len(shown[call][name]) == 0 {
				reason = unreachable["*"][name]
			}
			all[call][name] = shown[call][name]
			if reason != "" {
				all[call][name] = append(all[call][name], "unreachable: "+reason)
			}
		}
	}
	return all
}

// spellings are the names of an errno that has two.
func spellings(name string) []string {
	for _, pair := range [][]string{{"EAGAIN", "EWOULDBLOCK"}, {"ENOTSUP", "EOPNOTSUPP"}} {
		if slices.Contains(pair, name) {
			return pair
		}
	}
	return []string{name}
}

// TestErrnos holds for the tables: every error of every manual page is shown
// by a case or said to be unreachable, and not both.
func TestErrnos(t *testing.T) {
	total, reached := 0, 0
	for call, list := range errnos() {
		for errno, cases := range list {
			total++
			reason := slices.ContainsFunc(cases, func(s string) bool { return strings.HasPrefix(s, "unreachable: ") })
			switch {
			case len(cases) == 0:
				t.Errorf("%s: no case shows %s, and no reason says why", call, errno)
			case reason && len(cases) > 1:
				t.Errorf("%s: %s is shown by %q but said to be %s", call, errno, cases[0], cases[len(cases)-1])
			case !reason:
				reached++
			}
		}
	}
	for call, list := range unreachable {
		for errno := range list {
			if call != "*" && !slices.Contains(strings.Fields(manual[call]), errno) {
				t.Errorf("the reason for %s of %s stands for nothing: its page does not list it", errno, call)
			}
		}
	}
	t.Logf("%d errors of %d manual pages, %d of them shown by cases", total, len(manual), reached)
}
