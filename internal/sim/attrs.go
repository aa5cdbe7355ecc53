package sim

import (
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

func (t *turn) setAttr() error {
	ino := t.pickNode(isAny)
	n := t.d.fs.Get(ino)
	var a volume.SetAttr
	if t.chance(40) && n.Type() != posix.TypeSymlink {
		m := t.mode(n.IsDir())
		a.Mode = &m
	}
	if t.chance(25) {
		v := uint32(t.r.IntN(3))
		a.UID = &v
	}
	if t.chance(25) {
		v := uint32(t.r.IntN(3))
		a.GID = &v
	}
	if t.chance(25) {
		v := t.r.Int64N(1 << 60)
		a.Mtime = &v
	}
	if t.chance(15) {
		v := -t.r.Int64N(1 << 60)
		a.Atime = &v
	}
	if t.chance(15) {
		v := t.size(n.Content.Size)
		a.Size = &v
	}
	if a == (volume.SetAttr{}) {
		return nil
	}
	t.note("setattr of %d %s", ino, sayChange(a))
	got, err := t.s.SetAttr(volume.Cred{}, t.node(ino), a)
	want := t.d.fs.SetAttr(ino, posix.Change{Mode: a.Mode, UID: a.UID, GID: a.GID, Size: a.Size, Mtime: a.Mtime, Atime: a.Atime})
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	if err := t.sameAttr("setattr", got, ino); err != nil {
		return err
	}
	return t.verify(ino)
}

func sayChange(a volume.SetAttr) string {
	s := ""
	say := func(what string, v *int64) {
		if v != nil {
			s += fmt.Sprintf("%s=%d ", what, *v)
		}
	}
	wide := func(v *uint32) *int64 {
		if v == nil {
			return nil
		}
		w := int64(*v)
		return &w
	}
	say("mode", wide(a.Mode))
	say("uid", wide(a.UID))
	say("gid", wide(a.GID))
	say("size", a.Size)
	say("mtime", a.Mtime)
	say("atime", a.Atime)
	return s
}

func (t *turn) xattrName() string {
	switch t.r.IntN(40) {
	case 0:
		return "user." + string(make([]byte, 0, 1)) + fmt.Sprintf("%0*d", tine.MaxXattrNameBytes-5, 7)
	case 1:
		return "user." + fmt.Sprintf("%0*d", tine.MaxXattrNameBytes-4, 7)
	case 2:
		return "security.capability"
	case 3, 4, 5, 6:
		return posix.AccessACL
	case 7, 8, 9, 10:
		return posix.DefaultACL
	}
	return fmt.Sprintf("user.x%d", t.r.IntN(4))
}

func (t *turn) setXattr() error {
	ino, name := t.pickNode(isAny), t.xattrName()
	value := t.bytes(t.r.IntN(100))
	if (name == posix.AccessACL || name == posix.DefaultACL) && t.chance(95) {
		value = t.acl()
	} else if t.chance(3) {
		value = t.bytes(tine.MaxXattrValueBytes + t.r.IntN(2))
	}
	flags := pick(t.r, []uint32{0, 0, 0, posix.XattrCreate, posix.XattrReplace})
	t.note("setxattr of %d %.20q, %d bytes, flags %d", ino, name, len(value), flags)
	err := t.s.SetXattr(volume.Cred{}, t.node(ino), name, value, flags)
	if bad := same(err, t.d.fs.SetXattr(ino, name, string(value), flags)); bad != nil {
		return bad
	}
	return t.verify(ino)
}

// acl is an access control list, now and then one that is wrong.
func (t *turn) acl() []byte {
	perm := func() uint16 { return uint16(t.r.IntN(8)) }
	entries := []posix.ACE{{Tag: posix.TagOwner, Perm: perm()}}
	if t.chance(60) {
		entries = append(entries, posix.ACE{Tag: posix.TagUser, Perm: perm(), ID: uint32(t.r.IntN(3))})
	}
	entries = append(entries, posix.ACE{Tag: posix.TagOwnerGroup, Perm: perm()})
	if len(entries) > 2 != t.chance(5) {
		entries = append(entries, posix.ACE{Tag: posix.TagMask, Perm: perm()})
	}
	entries = append(entries, posix.ACE{Tag: posix.TagOther, Perm: perm()})
	return []byte(posix.EncodeACL(entries...))
}

func (t *turn) removeXattr() error {
	ino, name := t.pickNode(isAny), t.xattrName()
	if n := t.d.fs.Get(ino); len(n.Xattrs) > 0 && t.chance(70) {
		name = pick(t.r, n.Xattrs).Name
	}
	t.note("removexattr of %d %.20q", ino, name)
	err := t.s.RemoveXattr(volume.Cred{}, t.node(ino), name)
	if bad := same(err, t.d.fs.RemoveXattr(ino, name)); bad != nil {
		return bad
	}
	return t.verify(ino)
}

func (t *turn) getXattr() error {
	ino, name := t.pickNode(func(n *posix.Node) bool { return len(n.Xattrs) > 0 }), t.xattrName()
	t.note("getxattr of %d %.20q", ino, name)
	got, err := t.s.GetXattr(t.node(ino), name)
	want, missing := t.d.fs.GetXattr(ino, name)
	if bad := same(err, missing); bad != nil {
		return bad
	}
	if string(got) != want {
		return fmt.Errorf("the value is %.40q, want %.40q", got, want)
	}
	names, err := t.s.ListXattr(t.node(ino))
	if err != nil {
		return fmt.Errorf("listxattr: %w", err)
	}
	var all []string
	for _, x := range t.d.fs.Get(ino).Xattrs {
		all = append(all, x.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, all) {
		return fmt.Errorf("the attributes are %.60q, want %.60q", names, all)
	}
	return nil
}

func (t *turn) readlink() error {
	ino := t.pickNode(func(n *posix.Node) bool { return n.Type() == posix.TypeSymlink })
	n := t.d.fs.Get(ino)
	t.note("readlink of %d", ino)
	got, err := t.s.Readlink(t.node(ino))
	if n.Type() != posix.TypeSymlink {
		return same(err, tine.ErrInvalid)
	}
	if err != nil || got != n.Target {
		return fmt.Errorf("readlink gives %.40q, %s; want %.40q", got, sayError(err), n.Target)
	}
	return nil
}

func (t *turn) statFS() error {
	t.note("statfs")
	st, err := t.s.StatFS()
	if err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	want := t.d.fs.Tree.Inodes + int64(t.d.fs.Unnamed())
	if st.Inodes != want || st.Bytes < t.d.fs.Tree.Bytes {
		return fmt.Errorf("statfs shows %d inodes and %d bytes, the model %d and %d", st.Inodes, st.Bytes, want, t.d.fs.Tree.Bytes)
	}
	return nil
}
