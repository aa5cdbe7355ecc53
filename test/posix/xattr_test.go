package posix

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// attrsOf lists the names of extended attributes, sorted. What the machine
// adds by itself is left out.
func (c *kase) attrsOf(name string) string {
	p := make([]byte, 70000)
	n := must[int](c, "listxattr")(unix.Llistxattr(name, p))
	names := strings.FieldsFunc(string(p[:n]), func(r rune) bool { return r == 0 })
	names = slices.DeleteFunc(names, func(s string) bool { return s == "security.selinux" })
	slices.Sort(names)
	return strings.Join(names, " ")
}

var xattrCases = []behaviour{
	works("setxattr", "keeps values byte for byte, empty ones too", func(c *kase) {
		c.put("f", "")
		for i, value := range []string{"", "v", "\x00\xff\n", letters(3000)} {
			attr := fmt.Sprint("user.a", i)
			c.setxattr("f", attr, value)
			c.seesXattr("f", attr, value)
		}
		equal(c, "names", c.attrsOf("f"), "user.a0 user.a1 user.a2 user.a3")
	}),
	works("setxattr", "replaces a value by a longer or shorter one", func(c *kase) {
		c.put("f", "")
		for _, value := range []string{"one", letters(1000), "x", ""} {
			c.setxattr("f", "user.a", value)
			c.seesXattr("f", "user.a", value)
		}
	}),
	works("setxattr", "of directories", func(c *kase) {
		c.mkdir("d", 0o755)
		c.setxattr("d", "user.a", "x")
		c.seesXattr("d", "user.a", "x")
	}),
	works("setxattr", "of a descriptor, also one of an unlinked file", func(c *kase) {
		fd := c.file("f", "")
		c.ok(unix.Fsetxattr(fd, "user.a", []byte("x"), 0), "fsetxattr")
		c.seesXattr("f", "user.a", "x")
		c.unlink("f")
		c.ok(unix.Fsetxattr(fd, "user.b", []byte("y"), 0), "fsetxattr")
		p := make([]byte, 10)
		equal(c, "value", string(p[:must[int](c, "fgetxattr")(unix.Fgetxattr(fd, "user.b", p))]), "y")
		c.ok(unix.Fremovexattr(fd, "user.a"), "fremovexattr")
		equal(c, "size of the list", must[int](c, "flistxattr")(unix.Flistxattr(fd, nil)), len("user.b")+1)
	}),
	works("setxattr", "attributes belong to the file, not to a name", func(c *kase) {
		c.put("f", "")
		c.link("f", "g")
		c.setxattr("f", "user.a", "x")
		c.seesXattr("g", "user.a", "x")
		c.rename("g", "h")
		c.seesXattr("h", "user.a", "x")
	}),
	works("setxattr", "a new file of an old name has none", func(c *kase) {
		c.put("f", "")
		c.setxattr("f", "user.a", "x")
		c.unlink("f")
		c.put("f", "")
		c.seesNoXattr("f", "user.a")
		equal(c, "names", c.attrsOf("f"), "")
	}),
	works("setxattr", "follows a symbolic link", func(c *kase) {
		c.put("f", "")
		c.symlink("f", "s")
		c.setxattr("s", "user.a", "x")
		c.seesXattr("f", "user.a", "x")
	}),
	works("setxattr", "XATTR_CREATE of a new one, XATTR_REPLACE of an old one", func(c *kase) {
		c.put("f", "")
		c.ok(unix.Setxattr("f", "user.a", []byte("x"), unix.XATTR_CREATE), "setxattr")
		c.ok(unix.Setxattr("f", "user.a", []byte("y"), unix.XATTR_REPLACE), "setxattr")
		c.seesXattr("f", "user.a", "y")
	}),
	refuse("setxattr", unix.EEXIST, "XATTR_CREATE of an old one", func(c *kase) error {
		c.put("f", "")
		c.setxattr("f", "user.a", "x")
		return unix.Setxattr("f", "user.a", []byte("y"), unix.XATTR_CREATE)
	}),
	refuse("setxattr", unix.ENODATA, "XATTR_REPLACE of a new one", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "user.a", []byte("y"), unix.XATTR_REPLACE)
	}),
	refuse("setxattr", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "user.a", []byte("y"), 1<<20)
	}),
	refuse("setxattr", unix.E2BIG, "a value of more than 64 KiB", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "user.a", make([]byte, 65537), 0)
	}),
	refuse("setxattr", unix.ERANGE, "a name of 256 bytes", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "user."+strings.Repeat("a", 251), []byte("x"), 0)
	}),
	works("setxattr", "a name of 255 bytes", func(c *kase) {
		c.put("f", "")
		attr := "user." + strings.Repeat("a", 250)
		c.setxattr("f", attr, "x")
		c.seesXattr("f", attr, "x")
	}),
	refuse("setxattr", unix.ERANGE, "an empty name", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "", []byte("x"), 0)
	}),
	refuse("setxattr", unix.EINVAL, "nothing after the prefix", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "user.", []byte("x"), 0)
	}),
	refuse("setxattr", unix.ENOTSUP, "a name without a known prefix", func(c *kase) error {
		c.put("f", "")
		return unix.Setxattr("f", "name", []byte("x"), 0)
	}),
	refuse("setxattr", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fsetxattr(c.closed(), "user.a", nil, 0) }),
	refuse("getxattr", unix.ENODATA, "one that does not exist", func(c *kase) error {
		c.put("f", "")
		return failure(unix.Getxattr("f", "user.a", nil))
	}),
	refuse("getxattr", unix.ENODATA, "one that does not exist, beside another", func(c *kase) error {
		c.put("f", "")
		c.setxattr("f", "user.b", "x")
		return failure(unix.Getxattr("f", "user.a", nil))
	}),
	refuse("getxattr", unix.ERANGE, "a buffer that is too small", func(c *kase) error {
		c.put("f", "")
		c.setxattr("f", "user.a", "value")
		return failure(unix.Getxattr("f", "user.a", make([]byte, 4)))
	}),
	refuse("getxattr", unix.ENOTSUP, "a name without a known prefix", func(c *kase) error {
		c.put("f", "")
		return failure(unix.Getxattr("f", "name", nil))
	}),
	works("getxattr", "tells the size when there is no buffer, and fits exactly", func(c *kase) {
		c.put("f", "")
		c.setxattr("f", "user.a", "value")
		equal(c, "size", must[int](c, "getxattr")(unix.Getxattr("f", "user.a", nil)), 5)
		equal(c, "size", must[int](c, "getxattr")(unix.Getxattr("f", "user.a", make([]byte, 5))), 5)
	}),
	refuse("getxattr", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Fgetxattr(c.closed(), "user.a", nil)) }),
	works("listxattr", "tells the size when there is no buffer, and fits exactly", func(c *kase) {
		c.put("f", "")
		equal(c, "size of nothing", must[int](c, "listxattr")(unix.Listxattr("f", nil)), 0)
		c.setxattr("f", "user.a", "")
		c.setxattr("f", "user.bb", "")
		equal(c, "size", must[int](c, "listxattr")(unix.Listxattr("f", nil)), 15)
		equal(c, "size", must[int](c, "listxattr")(unix.Listxattr("f", make([]byte, 15))), 15)
	}),
	refuse("listxattr", unix.ERANGE, "a buffer that is too small", func(c *kase) error {
		c.put("f", "")
		c.setxattr("f", "user.a", "value")
		return failure(unix.Listxattr("f", make([]byte, 6)))
	}),
	refuse("listxattr", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Flistxattr(c.closed(), nil)) }),
	works("removexattr", "removes one and leaves the others", func(c *kase) {
		c.put("f", "")
		c.setxattr("f", "user.a", "x")
		c.setxattr("f", "user.b", "y")
		c.ok(unix.Removexattr("f", "user.a"), "removexattr")
		c.seesNoXattr("f", "user.a")
		c.seesXattr("f", "user.b", "y")
		equal(c, "names", c.attrsOf("f"), "user.b")
	}),
	refuse("removexattr", unix.ENODATA, "one that does not exist", func(c *kase) error {
		c.put("f", "")
		return unix.Removexattr("f", "user.a")
	}),
	refuse("removexattr", unix.ENOTSUP, "a name without a known prefix", func(c *kase) error {
		c.put("f", "")
		return unix.Removexattr("f", "name")
	}),
	refuse("removexattr", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fremovexattr(c.closed(), "user.a") }),
}

var xattrRuleCases = []behaviour{
	refuse("setxattr", unix.EPERM, "user. of a symbolic link", func(c *kase) error {
		c.symlink("x", "s")
		return unix.Lsetxattr("s", "user.a", []byte("x"), 0)
	}),
	refuse("setxattr", unix.EPERM, "user. of a fifo", func(c *kase) error {
		c.fifo("p")
		return unix.Setxattr("p", "user.a", []byte("x"), 0)
	}),
	refuse("setxattr", unix.EPERM, "user. of a device", func(c *kase) error {
		c.whiteDevice("n")
		return unix.Setxattr("n", "user.a", []byte("x"), 0)
	}),
	refuse("getxattr", unix.ENODATA, "user. of a fifo", func(c *kase) error {
		c.fifo("p")
		return failure(unix.Getxattr("p", "user.a", nil))
	}),
	works("setxattr", "trusted. of a symbolic link, a fifo and a device", func(c *kase) {
		c.symlink("x", "s")
		c.fifo("p")
		c.whiteDevice("n")
		for _, name := range []string{"s", "p", "n"} {
			c.ok(unix.Lsetxattr(name, "trusted.a", []byte(name), 0), "lsetxattr")
			p := make([]byte, 10)
			equal(c, "value", string(p[:must[int](c, "lgetxattr")(unix.Lgetxattr(name, "trusted.a", p))]), name)
			equal(c, "names", c.attrsOf(name), "trusted.a")
			c.ok(unix.Lremovexattr(name, "trusted.a"), "lremovexattr")
		}
	}),
	refuse("setxattr", unix.EACCES, "user. without permission to write", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Setxattr("f", "user.a", []byte("x"), 0) })
	}),
	refuse("getxattr", unix.EACCES, "user. without permission to read", func(c *kase) error {
		c.put("f", "")
		c.setxattr("f", "user.a", "x")
		c.chmod("f", 0o222)
		return c.tries(alice, func() error { return failure(unix.Getxattr("f", "user.a", nil)) })
	}),
	works("setxattr", "user. by whoever may write", func(c *kase) {
		c.put("f", "")
		c.chmod("f", 0o666)
		c.ok(c.tries(alice, func() error { return unix.Setxattr("f", "user.a", []byte("x"), 0) }), "setxattr")
		c.seesXattr("f", "user.a", "x")
	}),
	refuse("setxattr", unix.EPERM, "user. of another's sticky directory that one may write", func(c *kase) error {
		c.mkdir("d", 0o777)
		c.chmod("d", 0o1777)
		return c.tries(alice, func() error { return unix.Setxattr("d", "user.a", []byte("x"), 0) })
	}),
	refuse("setxattr", unix.EPERM, "trusted. by an ordinary user", func(c *kase) error {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		return c.tries(alice, func() error { return unix.Setxattr("f", "trusted.a", []byte("x"), 0) })
	}),
	works("getxattr", "trusted. does not exist for an ordinary user", func(c *kase) {
		c.put("f", "")
		c.setxattr("f", "trusted.a", "x")
		c.setxattr("f", "user.a", "x")
		c.seesXattr("f", "trusted.a", "x")
		equal(c, "names for root", c.attrsOf("f"), "trusted.a user.a")
		c.chmod("f", 0o666)
		c.as(alice, func() {
			c.refused(failure(unix.Getxattr("f", "trusted.a", nil)), unix.ENODATA, "getxattr")
			equal(c, "names", c.attrsOf("f"), "user.a")
		})
	}),
	works("setxattr", "security. by root; anybody may read it", func(c *kase) {
		c.put("f", "")
		c.setxattr("f", "security.tine", "x")
		c.seesXattr("f", "security.tine", "x")
		c.as(alice, func() {
			equal(c, "size", must[int](c, "getxattr")(unix.Getxattr("f", "security.tine", nil)), 1)
		})
	}),
	refuse("setxattr", unix.EPERM, "security. by an ordinary user", func(c *kase) error {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		return c.tries(alice, func() error { return unix.Setxattr("f", "security.tine", []byte("x"), 0) })
	}),
	works("setxattr", "many attributes are listed each once", func(c *kase) {
		c.put("f", "")
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprintf("user.%02d", i))
			c.setxattr("f", want[i], want[i])
		}
		equal(c, "names", c.attrsOf("f"), strings.Join(want, " "))
		for _, attr := range want {
			c.seesXattr("f", attr, attr)
		}
	}),
}
