package archive

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// POSIX ACLs are extended attributes to the kernel, in a binary form, and text
// in an archive. This file has both. The binary form is a version and entries
// of a tag, permissions and an id, little endian.

const (
	xattrACLAccess  = "system.posix_acl_access"
	xattrACLDefault = "system.posix_acl_default"

	aclVersion    = 2
	aclHeadBytes  = 4
	aclEntryBytes = 8
	aclNobody     = 0xffffffff // the id of entries that name nobody
)

// The tags, in the order in which the kernel wants them.
const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

// aclKey returns the record for an attribute that is an ACL, or "".
func aclKey(xattr string) string {
	switch xattr {
	case xattrACLAccess:
		return paxACLAccess
	case xattrACLDefault:
		return paxACLDefault
	}
	return ""
}

func aclXattr(key string) string {
	if key == paxACLDefault {
		return xattrACLDefault
	}
	return xattrACLAccess
}

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// aclText writes an ACL as text with numeric ids. It is not ok if the text
// would not say all that the value does.
func aclText(raw []byte) (text string, ok bool) {
	if len(raw) < aclHeadBytes || (len(raw)-aclHeadBytes)%aclEntryBytes != 0 || binary.LittleEndian.Uint32(raw) != aclVersion {
		return "", false
	}
	var parts []string
	for b := raw[aclHeadBytes:]; len(b) > 0; b = b[aclEntryBytes:] {
		e := aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		who := ""
		switch e.tag {
		case aclUser, aclGroup:
			who = strconv.FormatUint(uint64(e.id), 10)
		default:
			if e.id != aclNobody {
				return "", false
			}
		}
		word := map[uint16]string{aclUserObj: "user", aclUser: "user", aclGroupObj: "group", aclGroup: "group", aclMask: "mask", aclOther: "other"}[e.tag]
		if word == "" || e.perm > 7 {
			return "", false
		}
		perms := []byte("---")
		for i, c := range "rwx" {
			if e.perm&(4>>i) != 0 {
				perms[i] = byte(c)
			}
		}
		parts = append(parts, fmt.Sprintf("%s:%s:%s", word, who, perms))
	}
	text = strings.Join(parts, ",")
	back, unknown, ok := parseACL(text, nil)
	return text, ok && len(unknown) == 0 && slices.Equal(back, raw)
}

// parseACL reads the text of an ACL: entries of a word, whom it is about, and
// permissions, with commas or ends of lines between them. Whom may be a number
// or a name; star puts the number behind it. Entries of names that
// are not known are left out and returned.
func parseACL(text string, users Users) (raw []byte, unknown []string, ok bool) {
	var es []aclEntry
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		part, _, _ = strings.Cut(part, "#")
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		f := strings.Split(part, ":")
		if len(f) == 2 && slices.Contains([]string{"mask", "m", "other", "o"}, f[0]) {
			f = []string{f[0], "", f[1]} // as Solaris writes them
		}
		if len(f) < 3 || len(f) > 4 {
			return nil, nil, false
		}
		e, known, good := parseACLEntry(f, users)
		switch {
		case !good:
			return nil, nil, false
		case !known:
			unknown = append(unknown, f[1])
		default:
			es = append(es, e)
		}
	}
	if len(es) == 0 {
		return nil, nil, false
	}
	slices.SortStableFunc(es, func(a, b aclEntry) int { return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.id, b.id)) })
	raw = binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range es {
		raw = binary.LittleEndian.AppendUint16(raw, e.tag)
		raw = binary.LittleEndian.AppendUint16(raw, e.perm)
		raw = binary.LittleEndian.AppendUint32(raw, e.id)
	}
	return raw, unknown, true
}

// parseACLEntry reads one entry, taken apart at its colons.
func parseACLEntry(f []string, users Users) (e aclEntry, known, ok bool) {
	e.id, known = aclNobody, true
	find := func(name string) (uint32, bool) { return 0, false }
	switch f[0] {
	case "user", "u":
		e.tag = aclUserObj
		if f[1] != "" {
			e.tag = aclUser
			if users != nil {
				find = users.User
			}
		}
	case "group", "g":
		e.tag = aclGroupObj
		if f[1] != "" {
			e.tag = aclGroup
			if users != nil {
				find = users.Group
			}
		}
	case "mask", "m":
		e.tag = aclMask
	case "other", "o":
		e.tag = aclOther
	}
	if e.tag == 0 || f[1] != "" && e.tag != aclUser && e.tag != aclGroup {
		return e, false, false
	}
	if f[1] != "" {
		e.id, known = aclID(f, find)
	}
	for _, c := range strings.TrimSpace(f[2]) {
		switch c {
		case 'r':
			e.perm |= 4
		case 'w':
			e.perm |= 2
		case 'x':
			e.perm |= 1
		case '-':
		default:
			return e, false, false
		}
	}
	return e, known, true
}

// aclID finds whom an entry is about: by the number behind it, by the number in
// the place of the name, or by the name.
func aclID(f []string, find func(string) (uint32, bool)) (uint32, bool) {
	numbers := []string{f[1]}
	if len(f) == 4 {
		numbers = []string{f[3], f[1]}
	}
	for _, s := range numbers {
		if n, err := strconv.ParseUint(s, 10, 32); err == nil {
			return uint32(n), true
		}
	}
	return find(f[1])
}
