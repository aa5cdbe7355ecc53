package posix

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

// The tags of ACL entries, as the kernel has them.
var aclTags = map[string]uint16{"u:": 1, "u": 2, "g:": 4, "g": 8, "m:": 16, "o:": 32}

const aclNoID = ^uint32(0)

// acl is the binary form of an ACL like "u::rw-,u:54001:r--,g::r--,m::rw-,o::---".
// Entries must be in this order: owner, users, group, groups, mask, others.
func acl(text string) []byte {
	p := binary.LittleEndian.AppendUint32(nil, 2)
	for entry := range strings.SplitSeq(text, ",") {
		parts := strings.Split(entry, ":")
		tag, id := aclTags[parts[0]+":"], aclNoID
		if parts[1] != "" {
			n, _ := strconv.ParseUint(parts[1], 10, 32)
			tag, id = aclTags[parts[0]], uint32(n)
		}
		var perm uint16
		for i, bit := range []uint16{4, 2, 1} {
			if parts[2][i] != '-' {
				perm |= bit
			}
		}
		p = binary.LittleEndian.AppendUint16(p, tag)
		p = binary.LittleEndian.AppendUint16(p, perm)
		p = binary.LittleEndian.AppendUint32(p, id)
	}
	return p
}

// aclText is the reverse of acl.
func aclText(p []byte) string {
	if len(p) < 4 || (len(p)-4)%8 != 0 {
		return fmt.Sprintf("not an ACL: %x", p)
	}
	var entries []string
	for p = p[4:]; len(p) > 0; p = p[8:] {
		tag, perm, id := binary.LittleEndian.Uint16(p), binary.LittleEndian.Uint16(p[2:]), binary.LittleEndian.Uint32(p[4:])
		name, who := "?", ""
		for n, t := range aclTags {
			if t == tag {
				name = n[:1]
			}
		}
		if tag == 2 || tag == 8 {
			who = fmt.Sprint(id)
		}
		bits := []byte("---")
		for i, bit := range []uint16{4, 2, 1} {
			if perm&bit != 0 {
				bits[i] = "rwx"[i]
			}
		}
		entries = append(entries, name+":"+who+":"+string(bits))
	}
	return strings.Join(entries, ",")
}

func (c *kase) setACL(name, which, text string) {
	c.ok(unix.Setxattr(name, which, acl(text), 0), "set "+which)
}

// seesACL looks at an ACL; "" is none.
func (c *kase) seesACL(name, which, want string) {
	c.see(func() string {
		got, err := xattrAt(c.view, name, which)
		if err == unix.ENODATA {
			return differs(which+" of "+name, "", want)
		}
		if err != nil {
			return fmt.Sprintf("%s of %s: %s", which, name, errnoText(err))
		}
		return differs(which+" of "+name, aclText([]byte(got)), want)
	})
}

var (
	alicesRead  = fmt.Sprintf("u::rw-,u:%d:r--,g::---,m::r--,o::---", alice.uid)
	teamsWrite  = fmt.Sprintf("u::rw-,g::---,g:%d:rw-,m::rw-,o::---", team)
	inheritable = fmt.Sprintf("u::rwx,u:%d:rwx,g::r-x,g:%d:r-x,m::rwx,o::--x", alice.uid, team)
)

var aclCases = []behaviour{
	works("acl", "one that says what the mode says is the mode", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, "u::rw-,g::r--,o::---")
		c.seesMode("f", 0o640)
		c.seesACL("f", aclAccess, "")
	}),
	works("acl", "one with more entries is kept as it was set; its mask shows as the group's bits", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rwx,u:%d:---,g::r--,g:%d:-w-,m::rw-,o::--x", alice.uid, bob.uid, team))
		c.seesACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rwx,u:%d:---,g::r--,g:%d:-w-,m::rw-,o::--x", alice.uid, bob.uid, team))
		c.seesMode("f", 0o661)
		equal(c, "names", c.attrsOf("f"), aclAccess)
	}),
	works("acl", "a user's entry allows what the mode does not", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, alicesRead)
		c.as(alice, func() {
			c.ok(c.opens("f", unix.O_RDONLY), "open for reading")
			c.refused(c.opens("f", unix.O_WRONLY), unix.EACCES, "open for writing")
			c.ok(unix.Access("f", unix.R_OK), "access")
			c.refused(unix.Access("f", unix.W_OK), unix.EACCES, "access")
		})
		c.refused(c.tries(bob, func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open by another")
	}),
	works("acl", "a user's entry forbids what others may", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:---,g::r--,m::r--,o::r--", alice.uid))
		c.refused(c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open by the user")
		c.ok(c.tries(bob, func() error { return c.opens("f", unix.O_RDONLY) }), "open by another")
	}),
	works("acl", "a group's entry counts for members through supplementary groups", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, teamsWrite)
		c.ok(c.tries(bob.in(1, team), func() error { return c.opens("f", unix.O_RDWR) }), "open by a member")
		c.refused(c.tries(bob, func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open by another")
	}),
	works("acl", "of several groups' entries one that allows is enough, but not two halves", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,g::---,g:%d:r--,g:%d:-w-,m::rw-,o::---", team, team+1))
		c.as(bob.in(team, team+1), func() {
			c.ok(c.opens("f", unix.O_RDONLY), "open for reading")
			c.ok(c.opens("f", unix.O_WRONLY), "open for writing")
			c.refused(c.opens("f", unix.O_RDWR), unix.EACCES, "open for both")
		})
	}),
	works("acl", "the mask bounds users and groups, not the owner and others", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(bob.uid), int(bob.gid))
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rw-,g::rw-,m::r--,o::rw-", alice.uid))
		c.as(alice, func() {
			c.ok(c.opens("f", unix.O_RDONLY), "open for reading")
			c.refused(c.opens("f", unix.O_WRONLY), unix.EACCES, "open for writing")
		})
		c.refused(c.tries(carol.in(bob.gid), func() error { return c.opens("f", unix.O_WRONLY) }), unix.EACCES, "open by the group")
		c.ok(c.tries(bob, func() error { return c.opens("f", unix.O_RDWR) }), "open by the owner")
		c.ok(c.tries(carol, func() error { return c.opens("f", unix.O_RDWR) }), "open by another")
	}),
	works("acl", "chmod sets owner, mask and others, and leaves the group's entry", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rw-,g::r--,m::rw-,o::---", alice.uid))
		c.chmod("f", 0o714)
		c.seesACL("f", aclAccess, fmt.Sprintf("u::rwx,u:%d:rw-,g::r--,m::--x,o::r--", alice.uid))
		c.seesMode("f", 0o714)
	}),
	works("acl", "without the ACL the mode stays as it was with it", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rw-,g::r--,m::rw-,o::---", alice.uid))
		c.ok(unix.Removexattr("f", aclAccess), "removexattr")
		c.seesACL("f", aclAccess, "")
		c.seesMode("f", 0o660)
		c.refused(c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open")
	}),
	works("acl", "counts for searching and changing directories", func(c *kase) {
		c.mkdir("d", 0o700)
		c.put("d/f", "content")
		c.setACL("d", aclAccess, fmt.Sprintf("u::rwx,u:%d:-wx,g::---,m::rwx,o::---", alice.uid))
		c.as(alice, func() {
			c.ok(c.opens("d/f", unix.O_RDONLY), "open")
			c.refused(c.opens("d", unix.O_RDONLY), unix.EACCES, "open of the directory")
			c.put("d/g", "")
			c.unlink("d/f")
		})
		c.seesNames("d", "g")
	}),
	works("acl", "stays with a rename, a link and a chown", func(c *kase) {
		c.put("f", "")
		c.setACL("f", aclAccess, alicesRead)
		c.link("f", "g")
		c.rename("f", "h")
		c.chown("h", 1000, 1000)
		c.seesACL("g", aclAccess, alicesRead)
	}),
	works("acl", "set by an owner who is not in the group drops set-group-ID", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(bob.uid), team)
		c.chmod("f", 0o2755)
		c.as(bob, func() { c.setACL("f", aclAccess, "u::rwx,g::r-x,o::r-x") })
		c.seesMode("f", 0o755)
	}),
	refuse("acl", unix.EPERM, "set by another than the owner", func(c *kase) error {
		c.put("f", "")
		c.chmod("f", 0o666)
		return c.tries(alice, func() error { return unix.Setxattr("f", aclAccess, acl(alicesRead), 0) })
	}),
	refuse("acl", unix.EINVAL, "with users but no mask", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", aclAccess, acl("u::rw-,u:5:r--,g::---,o::---"), 0)
	}),
	refuse("acl", unix.EINVAL, "without the owner's entry", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", aclAccess, acl("g::rw-,o::---"), 0)
	}),
	refuse("acl", unix.EINVAL, "entries out of order", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", aclAccess, acl("o::---,g::rw-,u::rw-"), 0)
	}),
	refuse("acl", unix.EINVAL, "of a broken length", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", aclAccess, acl("u::rw-,g::r--,o::---")[:10], 0)
	}),
	refuse("acl", unix.EOPNOTSUPP, "of an unknown version", func(c *kase) error {
		c.put("f", "")
		p := acl("u::rw-,g::r--,o::---")
		p[0] = 9
		return unix.Setxattr("f", aclAccess, p, 0)
	}),
	refuse("acl", unix.EOPNOTSUPP, "of a symbolic link", func(c *kase) error {
		c.symlink("x", "s")
		return unix.Lsetxattr("s", aclAccess, acl(alicesRead), 0)
	}),
	refuse("acl", unix.ENODATA, "asked for where there is none", func(c *kase) error {
		c.put("f", "")
		return failure(unix.Getxattr("f", aclAccess, nil))
	}),
}

var aclRuleCases = []behaviour{
	works("acl", "default: kept by a directory, and does not change its mode", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, inheritable)
		c.seesACL("d", aclDefault, inheritable)
		c.seesACL("d", aclAccess, "")
		c.seesMode("d", 0o750)
		equal(c, "names", c.attrsOf("d"), aclDefault)
	}),
	works("acl", "default: a file takes it, bounded by the mode it is made with and not by the umask", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, inheritable)
		unix.Umask(0o077)
		fd, err := unix.Open("d/f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o664)
		c.ok(err, "create")
		c.close(fd)
		c.seesMode("d/f", 0o660)
		c.seesACL("d/f", aclAccess, fmt.Sprintf("u::rw-,u:%d:rwx,g::r-x,g:%d:r-x,m::rw-,o::---", alice.uid, team))
		c.seesACL("d/f", aclDefault, "")
	}),
	works("acl", "default: a directory takes it as its own and as its default", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, inheritable)
		unix.Umask(0o077)
		c.mkdir("d/e", 0o777)
		c.seesMode("d/e", 0o771)
		c.seesACL("d/e", aclAccess, inheritable)
		c.seesACL("d/e", aclDefault, inheritable)
		c.mkdir("d/e/g", 0o700)
		c.seesMode("d/e/g", 0o700)
		c.seesACL("d/e/g", aclDefault, inheritable)
	}),
	works("acl", "default: fifos, devices and unnamed files take it too, links do not", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, inheritable)
		unix.Umask(0o077)
		c.ok(unix.Mknod("d/p", unix.S_IFIFO|0o666, 0), "mknod")
		c.symlink("x", "d/s")
		c.seesMode("d/p", 0o660)
		c.seesMode("d/s", 0o777)
		fd := c.open("d", unix.O_TMPFILE|unix.O_RDWR)
		equal(c, "mode of the unnamed file", c.fstat(fd).Mode&0o777, 0o640)
	}),
	works("acl", "default: one without more entries only replaces the umask", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, "u::rwx,g::r-x,o::---")
		unix.Umask(0)
		fd, err := unix.Open("d/f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
		c.ok(err, "create")
		c.close(fd)
		c.seesMode("d/f", 0o640)
		c.seesACL("d/f", aclAccess, "")
	}),
	works("acl", "default: without it the umask counts again", func(c *kase) {
		c.mkdir("d", 0o750)
		c.setACL("d", aclDefault, inheritable)
		c.ok(unix.Removexattr("d", aclDefault), "removexattr")
		c.seesACL("d", aclDefault, "")
		unix.Umask(0o077)
		fd, err := unix.Open("d/f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
		c.ok(err, "create")
		c.close(fd)
		c.seesMode("d/f", 0o600)
	}),
	works("acl", "default: what it gives counts at once", func(c *kase) {
		c.own()
		c.mkdir("d", 0o777)
		c.setACL("d", aclDefault, fmt.Sprintf("u::rwx,u:%d:rwx,g::---,m::rwx,o::---", alice.uid))
		c.as(bob, func() {
			fd, err := unix.Open("d/f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
			c.ok(err, "create")
			c.close(fd)
		})
		c.ok(c.tries(alice, func() error { return c.opens("d/f", unix.O_RDWR) }), "open by the user of the entry")
		c.refused(c.tries(carol, func() error { return c.opens("d/f", unix.O_RDONLY) }), unix.EACCES, "open by another")
	}),
	refuse("acl", unix.EACCES, "default: of a file", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", aclDefault, acl(inheritable), 0)
	}),
	refuse("acl", unix.EPERM, "default: set by another than the owner", func(c *kase) error {
		c.mkdir("d", 0o777)
		return c.tries(alice, func() error { return unix.Setxattr("d", aclDefault, acl(inheritable), 0) })
	}),
	refuse("acl", unix.ENODATA, "default: asked for where there is none", func(c *kase) error {
		c.mkdir("d", 0o777)
		return failure(unix.Getxattr("d", aclDefault, nil))
	}),
}
