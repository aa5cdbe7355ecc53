package behaviours

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// play is what another process does; it returns the exit status.
func play(role string, args []string) int {
	roles := map[string]func() error{
		"lock-cycle":  func() error { return lockCycle(args[0], 100) },
		"append":      func() error { return appendTo(args[0], args[1]) },
		"interrupted": func() error { return hearSignals(func() error { return interrupted(args[0]) }) },
		"symlink":     func() error { return os.Symlink("target", args[0]) },
		"hard-link": func() error {
			return errors.Join(os.WriteFile(args[0], []byte("x"), 0o644), os.Link(args[0], args[1]))
		},
		"share":        func() error { return share(args[0], args[1] == "first") },
		"link-unlink":  func() error { return linkUnlink(args[0], args[1]) },
		"remove-tree":  func() error { return removeTree(args[0]) },
		"list":         func() error { return list(args[0]) },
		"set-group-id": func() error { return makeSetGroupID(args[0]) },
		"create":       func() error { return createAndLook(args[0]) },
		"count-locked": func() error { return countLocked(args[0]) },
		"try-lock":     func() error { return tryLock(args[0]) },
		"churn":        func() error { return churn(args[0], args[1]) },
	}
	do := roles[role]
	if do == nil {
		fmt.Println("no such role:", role)
		return 2
	}
	if err := do(); err != nil {
		fmt.Println(role, "failed:", err)
		return 1
	}
	return 0
}

// hearSignals runs fn with a handler for SIGUSR1.
func hearSignals(fn func() error) error {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGUSR1)
	defer signal.Stop(heard)
	return fn()
}

// linkUnlink makes and removes links of a file.
func linkUnlink(path, link string) error {
	for range 250 {
		if err := errors.Join(os.Link(path, link), os.Remove(link)); err != nil {
			return err
		}
	}
	return nil
}

// removeTree is rm -rf beside others who do the same.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = removeTree(path)
		} else {
			err = os.Remove(path)
		}
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// list prints what a directory lists, and fails if a name can be used.
func list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fmt.Println(e.Name())
		if _, err := os.Lstat(filepath.Join(dir, e.Name())); !os.IsPermission(err) {
			return fmt.Errorf("lstat without x: %v", err)
		}
	}
	return nil
}

func makeSetGroupID(dir string) error {
	unix.Umask(0)
	for _, name := range []string{"member", "stranger"} {
		in := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(in, "file"), nil, 0o644); err != nil {
			return err
		}
		if err := unix.Mkdir(filepath.Join(in, "sub"), 0o755); err != nil {
			return err
		}
		if err := unix.Chmod(filepath.Join(in, "file"), 0o2755); err != nil {
			return err
		}
	}
	return nil
}

func createAndLook(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var byFD, byPath unix.Stat_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &byFD), unix.Lstat(path, &byPath)); err != nil {
		return err
	}
	for _, st := range []unix.Stat_t{byFD, byPath} {
		if st.Uid != nobody || st.Gid != nobodys || st.Mode != unix.S_IFREG|0o600 {
			return fmt.Errorf("owner %d:%d, mode %o", st.Uid, st.Gid, st.Mode)
		}
	}
	return nil
}

// countLocked counts up a number in a file under a record lock.
func countLocked(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for range 50 {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &lock); err != nil {
			return err
		}
		b := make([]byte, 8)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(string(b), "%d", &n); err != nil {
			return err
		}
		if _, err := f.WriteAt(fmt.Appendf(nil, "%08d", n+1), 0); err != nil {
			return err
		}
		lock.Type = unix.F_UNLCK
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
			return err
		}
	}
	return nil
}

// tryLock prints whether the whole file can be locked for writing now.
func tryLock(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	switch err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err {
	case nil:
		fmt.Print("free")
	case unix.EAGAIN, unix.EACCES:
		fmt.Print("held")
	default:
		return err
	}
	return nil
}

// churn makes, renames, lists and removes names of one directory.
func churn(dir, who string) error {
	for i := range 300 {
		path := filepath.Join(dir, fmt.Sprint(who, "-", i))
		if err := os.WriteFile(path, []byte(who), 0o644); err != nil {
			return err
		}
		if _, err := os.ReadDir(dir); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(dir, "common")); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, "common")); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
