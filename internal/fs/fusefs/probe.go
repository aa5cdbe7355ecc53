package fusefs

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// Report is what this machine offers to mounts.
type Report struct {
	// Err says why nothing can be mounted; nil if something can.
	Err error
	// Protocol is the version of FUSE that the kernel speaks: "7.44".
	Protocol string
	// Offered are the features that the kernel has.
	Offered Features
}

// Probe mounts on a temporary directory, sees what the kernel offers in its
// first request, and unmounts. It takes some milliseconds and leaves nothing
// behind.
func Probe() Report {
	dir, err := os.MkdirTemp("", "tine-probe-")
	if err != nil {
		return Report{Err: tine.Errorf(tine.KindIO, "cannot make a directory to try a mount on: %w", err)}
	}
	defer os.Remove(dir)
	fd, err := mountFUSE(dir, Options{Source: "tine"}, 128<<10, true)
	if err != nil {
		return Report{Err: err}
	}
	defer unix.Close(fd)
	defer unmountAt(dir, unix.MNT_DETACH)
	in, err := readInit(fd)
	if err != nil {
		return Report{Err: err}
	}
	r := Report{Protocol: fmt.Sprintf("%d.%d", in.Major, in.Minor)}
	r.Offered = AllFeatures.offeredBy(in.Flags64())
	// These two have no flag but came with a version of the protocol.
	if !in.SupportsVersion(7, 39) {
		r.Offered &^= CreationTime
	}
	if !in.SupportsVersion(7, 44) {
		r.Offered &^= EpochNotify
	}
	return r
}

// readInit reads the kernel's first request.
func readInit(fd int) (*fuse.InitIn, error) {
	const opInit = 26
	var buf [16 << 10]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return nil, tine.Errorf(tine.KindIO, "cannot read from /dev/fuse: %w", err)
	}
	in := new(fuse.InitIn)
	size := int(unsafe.Sizeof(*in))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(in)), size), buf[:n])
	if n < int(unsafe.Sizeof(in.InHeader)) || binary.NativeEndian.Uint32(buf[4:]) != opInit {
		return nil, tine.Errorf(tine.KindInternal, "the first request of the kernel is not INIT")
	}
	return in, nil
}
