// Command memfs mounts an empty file system that keeps everything in memory
// and nothing else in mind: no durability, no locks across machines, no
// forks. It is a ceiling for benchmarks: what any file system behind the same
// kernel interface and library can at best reach on this machine, whose local
// disk is too moody to compare with.
//
//	go run ./bench/memfs DIR
//
// It serves until it is interrupted or DIR is unmounted.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: memfs DIR")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "memfs:", err)
		os.Exit(1)
	}
}

func serve(dir string) error {
	// The same options as a mount of tine.
	server, err := fuse.NewServer(newMemFS(), dir, &fuse.MountOptions{
		Name: "memfs", FsName: "memfs",
		AllowOther: true, DirectMountStrict: true, Options: []string{"default_permissions"},
		MaxWrite: 1 << 20, MaxBackground: 64,
		ExplicitDataCacheControl: true, EnableSymlinkCaching: true, DisableSplice: true,
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2 |
			fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ASYNC_DIO | fuse.CAP_DIRECT_IO_ALLOW_MMAP,
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
	})
	if err != nil {
		return fmt.Errorf("cannot mount on %s: %w", dir, err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return err
	}
	if err := readAhead(dir); err != nil {
		fmt.Fprintln(os.Stderr, "memfs: the kernel keeps its own read-ahead:", err)
	}
	fmt.Println("memfs is mounted on", dir)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range stop {
			if err := server.Unmount(); err != nil {
				fmt.Fprintln(os.Stderr, "memfs:", err)
			}
		}
	}()
	server.Wait()
	return nil
}

// readAhead raises the kernel's read-ahead to 1 MiB, as a mount of tine does.
func readAhead(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	file := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	return os.WriteFile(file, []byte("1024"), 0)
}
