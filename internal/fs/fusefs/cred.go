package fusefs

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

func cred(h *fuse.InHeader) volume.Cred {
	return volume.Cred{UID: h.Uid, GID: h.Gid}
}

// credFor is cred for a request that makes something with the given mode, from
// which the umask has not been taken off: a default ACL takes its place. Only set-group-ID depends on the caller's supplementary groups, so only then
// are they looked up: the protocol does not carry them, and /proc costs as
// much as a request. Kernels since 6.0 have applied the rule already.
func credFor(h *fuse.InHeader, mode, umask uint32) volume.Cred {
	c := cred(h)
	c.Umask = umask
	if mode&syscall.S_ISGID != 0 && c.UID != 0 {
		c.Groups = supplementaryGroups(h.Pid)
	}
	return c
}

// credKilling is who changes an existing file, as far as that still matters:
// whether set-user-ID and set-group-ID go. The kernel says so in the request,
// as it depends on a capability and not on the user; a kernel without
// KillPrivileges clears the bits itself before. In a mount with mapped ids
// such requests carry no user at all.
func credKilling(kill bool) volume.Cred {
	const nobody = 65534
	if kill {
		return volume.Cred{UID: nobody, GID: nobody}
	}
	return volume.Cred{}
}

// killingFor is credKilling for requests about which the kernel does not say
// whether the caller is in the file's group. That decides about set-group-ID of
// a file that its group may not execute, and is looked up only then.
func killingFor(kill bool, h *fuse.InHeader) volume.Cred {
	c := credKilling(kill)
	if kill {
		c.Member = func(g uint32) bool {
			return callerUID(h) == 0 || callerGID(h) == g || slices.Contains(supplementaryGroups(h.Pid), g)
		}
	}
	return c
}

// killPrivileges clears a file's set-user-ID and set-group-ID after a change for
// which the kernel leaves that to us but does not say whether it is due.
func (fs *fileSystem) killPrivileges(in *fuse.InHeader, file uint64) error {
	if in.Uid == 0 || fs.disabled.Has(KillPrivileges) {
		return nil
	}
	n := fs.ids.node(file)
	a, err := fs.s.GetAttr(n)
	if err != nil || a.Mode&(syscall.S_ISUID|syscall.S_ISGID) == 0 || callerUID(in) == 0 {
		return err
	}
	_, err = fs.s.SetAttr(killingFor(true, in), n, volume.SetAttr{KillPriv: true})
	return err
}

// supplementaryGroups are the groups of a process beside its own.
func supplementaryGroups(pid uint32) []uint32 { return idsOf(processStatus(pid), "Groups:") }

// callerUID is the user who asks, also where a mount with mapped ids leaves it
// out of the request: then the fourth of the user ids in /proc, which file
// systems go by.
func callerUID(h *fuse.InHeader) uint32 {
	if h.Uid != nobodyMapped {
		return h.Uid
	}
	if ids := idsOf(processStatus(h.Pid), "Uid:"); len(ids) == 4 {
		return ids[3]
	}
	return h.Uid
}

// callerGID is the same of the group.
func callerGID(h *fuse.InHeader) uint32 {
	if h.Gid != nobodyMapped {
		return h.Gid
	}
	if ids := idsOf(processStatus(h.Pid), "Gid:"); len(ids) == 4 {
		return ids[3]
	}
	return h.Gid
}

// nobodyMapped is the user in requests of a mount with mapped ids, except those
// that make something.
const nobodyMapped = 1<<32 - 1

// processStatus reads what /proc says of a process. The process waits for this
// very request, so its id cannot have gone to another; of an id that the server
// cannot see (another process namespace) there is nothing.
func processStatus(pid uint32) []byte {
	if pid == 0 {
		return nil
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/status")
	if err != nil {
		return nil
	}
	return status
}

// idsOf returns the numbers in a line of a process's status.
func idsOf(status []byte, name string) []uint32 {
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		var ids []uint32
		for field := range bytes.FieldsSeq(rest) {
			if id, err := strconv.ParseUint(string(field), 10, 32); err == nil {
				ids = append(ids, uint32(id))
			}
		}
		return ids
	}
	return nil
}
