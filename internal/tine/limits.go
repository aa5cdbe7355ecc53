package tine

// Limits that formats and interfaces share. Those of names and links are
// Linux's own (limits.h, ext4); the others are choices of this project.
const (
	// MaxNameBytes is the longest directory entry (NAME_MAX).
	MaxNameBytes = 255
	// MaxSymlinkBytes is the longest symbolic link target (PATH_MAX - 1).
	MaxSymlinkBytes = 4095
	// MaxXattrNameBytes is the longest extended attribute name (XATTR_NAME_MAX).
	MaxXattrNameBytes = 255
	// MaxXattrValueBytes is the largest extended attribute value (XATTR_SIZE_MAX).
	MaxXattrValueBytes = 65536
	// MaxXattrListBytes is the largest list of names that listxattr(2) can return (XATTR_LIST_MAX).
	MaxXattrListBytes = 65536
	// MaxLinks is the largest link count of a file; ext4 stops at 65,000.
	MaxLinks = 65000
	// MaxFileBytes is the largest file size.
	MaxFileBytes = 1 << 53
	// ChunkBytes is the part of a file's address space that one chunk row describes.
	ChunkBytes = 1 << 20
	// InlineBytes is the largest file whose content lives in its chunk row.
	InlineBytes = 4096
	// MaxDiskNameBytes is the longest name of a disk or checkpoint.
	MaxDiskNameBytes = 128
	// MaxMessageBytes is the longest checkpoint message.
	MaxMessageBytes = 4096
)

// CheckName reports whether s may name a disk or a checkpoint: 1 to
// MaxDiskNameBytes bytes of letters, digits, '.', '_' and '-', starting with
// a letter, a digit or '_'. That leaves '@', ':' and '/' free for the
// notation DISK@CHECKPOINT:/path and keeps every name safe in a shell.
func CheckName(what, s string) error {
	if s == "" {
		return Errorf(KindInvalid, "the %s name is empty", what)
	}
	if len(s) > MaxDiskNameBytes {
		return Errorf(KindInvalid, "the %s name has %d bytes; at most %d are allowed", what, len(s), MaxDiskNameBytes)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return Errorf(KindInvalid, "the %s name %q is not allowed: use letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'", what, s)
		}
	}
	return nil
}
