// Package codes is the list of what the checker can find, with what each finding means
// and what repair does about it.
package codes

import "slices"

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Error Severity = "error" // something that was stored is wrong, lost or in danger
	Leak  Severity = "leak"  // nothing is wrong for users; space is held that nothing needs
	Note  Severity = "note"  // worth knowing; nothing is wrong
)

// Entry is one code: a kind of finding. Codes are stable: scripts may decide on
// them. A code that is given up is never used again.
type Entry struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Meaning  string   `json:"meaning"` // what is so
	Effect   string   `json:"effect"`  // what it means for the user
	Repair   string   `json:"repair"`  // what repair does about it
}

// All returns all kinds of findings, in the order in which they are documented. The
// table in SPECIFICATION.md is this one; a test compares them.
func All() []Entry {
	return slices.Concat(rows(), records(), names(), data(), segments(), files(), leaks())
}

// rows are the findings of single rows and the row store.
func rows() []Entry {
	return []Entry{
		{"R001", Error, "a row's key is malformed", "the row is of no use", "removes it, where it lies in a known table"},
		{"R002", Error, "a row cannot be decoded", "what it described answers EIO", "takes the next older version on a head; names are rebuilt from the paging order, file data is marked as lost"},
		{"R003", Error, "a row has a format of a newer version", "this version cannot check it", "refuses to change anything: run the newer version"},
		{"R004", Leak, "rows belong to no line", "they take space", "removes them, unless a damaged record may once have named them"},
		{"R005", Error, "the row store could not be read to the end", "part of the check was left out", "if a file is damaged, as for R010; if the device fails, nothing: repair a copy on a sound device"},
		{"R006", Error, "a version was born outside its line's time", "a checkpoint or fork may show what it should not", "raises the line's epoch; else nothing"},
		{"R007", Error, "two strata of a line hold the same version", "after a restart the older one may be shown", "removes the one that is not shown"},
		{"R008", Error, "a newer version lies in an older stratum", "an older state of the row is shown", "moves it to the newest stratum"},
		{"R009", Note, "rows of a table that is not known", "none known", "nothing"},
		{"R010", Error, "a file of the row store is damaged", "rows in it answer EIO, or the server does not start", "writes the row store anew with all rows that can be read; the damaged one is kept in the folder \"damaged\""},
		{"R011", Error, "rows of a file may be among those that a repair could not read", "it is in an older state, or lacks names or data", "marks missing data as lost; look at the file"},
	}
}

// records are the findings of trees, lines, disks and checkpoints.
func records() []Entry {
	return []Entry{
		{"T001", Error, "a tree's records exist and the tree's own does not", "its disks are not served", "writes it anew"},
		{"T002", Error, "a disk names a tree that does not exist", "the disk is not served", "nothing: restore from a backup"},
		{"T003", Error, "a record names a line that does not exist", "the tree cannot be loaded", "rebuilds the line if it was the tree's only one and its rows are there; drops checkpoints whose line is gone; else nothing"},
		{"T004", Error, "lines descend from each other in a circle", "the tree cannot be loaded", "nothing: restore from a backup"},
		{"T005", Error, "an alias leads in a circle or to no line", "the tree cannot be loaded", "removes it, if nothing goes by it"},
		{"T006", Error, "a stratum belongs to two lines", "one of them shows the other's files", "nothing: restore from a backup"},
		{"T007", Error, "a fork or checkpoint stands at an epoch that its line does not hold", "what it shows may change", "nothing"},
		{"T008", Error, "two disks have the same line as their head", "each shows the other's writes", "nothing: fork one and remove the other"},
		{"T009", Error, "two disks, or two checkpoints of a disk, have one name", "only one of them can be reached", "gives the newer one another name"},
		{"T010", Error, "a checkpoint names a disk that does not exist", "the tree cannot be loaded", "drops the checkpoint"},
		{"T011", Error, "a line is the head of no disk, and was written past its pins", "the disk whose record is gone is not served", "makes a disk of it, or gives it back to the disk that has lost its line"},
		{"T012", Error, "a record of a tree cannot be decoded", "the disk or checkpoint is not served, or the tree cannot be loaded", "rebuilds trees, disks, segments and counts from what is left; drops checkpoints, policies, tasks and history; else nothing"},
		{"T013", Error, "a line's epochs contradict each other", "new writes may change what checkpoints show", "sets its first epoch from the branch, and its epoch past its pins"},
		{"T014", Error, "a disk or checkpoint has a name that none can have", "it cannot be named in a command", "gives it another name"},
		{"T015", Error, "a tree names a store, and nothing says what that has of it", "its disks cannot be used", "makes it a tree of this machine alone"},
	}
}

// names are the findings of inodes, names and attributes.
func names() []Entry {
	return []Entry{
		{"N001", Error, "a name leads to an inode that does not exist", "the name answers EIO", "makes the inode anew if its data or entries are there, else drops the name"},
		{"N002", Error, "a name has another type than its inode", "listings show the wrong type", "sets the type"},
		{"N003", Error, "a name is missing in the paging order, or differs there", "listings leave it out or show it wrong", "writes it there"},
		{"N004", Error, "the paging order has a name that does not exist", "listings show a name that cannot be opened", "writes the name if its inode has none else, or removes the entry"},
		{"N005", Error, "names stand in something that is not a directory", "they cannot be reached", "drops the names; their inodes come to /lost+found if they have no other"},
		{"N006", Error, "a directory has several names", "it shows in several places, and its parent is in doubt", "keeps one name"},
		{"N007", Error, "a directory's parent differs from where its name stands", "\"..\" leads elsewhere", "sets the parent"},
		{"N008", Error, "a directory cannot be reached from the root", "what is in it cannot be reached", "moves it to /lost+found"},
		{"N009", Error, "an inode has no name", "its data takes space and cannot be reached", "gives it a name in /lost+found"},
		{"N010", Error, "the root is not there, or not a directory", "the disk cannot be used", "makes it anew"},
		{"N011", Error, "what a file knows of its names differs from them", "later links and renames may go wrong", "writes it anew"},
		{"N012", Error, "a link count differs from the names", "the file goes too early or never", "sets it"},
		{"N013", Leak, "an inode without links is not marked as such", "it is never removed", "marks it, so that the next start removes it"},
		{"N014", Error, "an inode is marked as unlinked and has names, or does not exist", "the next start would remove it", "removes the mark"},
		{"N015", Error, "a name is not one that a file can have", "it cannot be opened", "drops it; its inode comes to /lost+found"},
		{"N016", Error, "an inode has impossible values", "calls on it may fail", "cuts what is too large; an inode without a type is made a file"},
		{"N017", Error, "a disk's counts differ from its files", "df shows wrong figures", "sets them"},
		{"N018", Error, "a disk's counters are not there, or would give a number twice", "a new file would take the place of another", "sets them past all numbers in use"},
		{"X001", Error, "extended attributes of an inode that does not exist", "they take space", "removes them"},
		{"X002", Error, "an inode with extended attributes is not marked as having them", "they are not shown", "marks it"},
	}
}

// data are the findings of what files hold.
func data() []Entry {
	return []Entry{
		{"D001", Error, "a file has data past its end", "it is not shown, and may come up when the file grows", "extends the file to its data"},
		{"D002", Error, "a file's count of bytes differs from its data", "du shows a wrong figure; a wrong 0 hides data", "sets it"},
		{"D003", Error, "data of something that is not a file", "it takes space and cannot be reached", "makes the file anew in /lost+found, or removes the data of what cannot have any"},
		{"D004", Error, "a file's content is not where its inode says", "reading or writing it fails", "sets the mark of the inode"},
		{"D005", Error, "a file's data is lost: its segment is not there", "reading gives EIO there", "marks the data as lost; the rest of the file stays"},
		{"D006", Error, "a file names data past the end of its segment", "reading gives EIO there", "marks the data as lost; the rest of the file stays"},
		{"D007", Error, "a file's data is damaged: its checksum does not hold", "reading gives EIO there", "with --read-data, marks the data as lost; the rest of the file stays"},
		{"D008", Error, "a file names a block that its segment file leaves out", "reading gives EIO there", "marks the data as lost; the rest of the file stays"},
		{"D009", Note, "a repair has marked data of a file as lost", "reading gives EIO there until it is written anew", "nothing: write or remove the file"},
		{"D010", Error, "a line names bytes that the line which wrote them no longer counts", "they may be freed while in use", "nothing: copy the file, it is safe while no reclaim has run"},
	}
}

// segments are the findings of segment files.
func segments() []Entry {
	return []Entry{
		{"S001", Error, "a segment's file is not there", "all files with data in it lose that data", "marks the data as lost"},
		{"S002", Leak, "a segment file that no row names", "it takes space; the next start removes it", "removes it; keeps it, if rows name it and its record is gone; moves it to the folder damaged, if rows were lost"},
		{"S003", Leak, "a file of an older or newer generation of a segment", "it takes space; the next start removes it", "removes it"},
		{"S004", Error, "a segment file's header or footer, or the end of an open one, is damaged or contradicts its row", "all files with data in it answer EIO", "writes the file anew from the blocks that hold"},
		{"S005", Error, "a segment file is shorter than its row says", "files with data at its end answer EIO", "writes the file anew from the blocks that hold"},
		{"S006", Error, "a segment's count of live bytes is wrong", "space is freed too early or never", "sets it"},
		{"S007", Error, "a shared piece's count is wrong", "space is freed too early or never", "sets it"},
		{"S008", Leak, "tails, counts or pieces of a segment that has no row", "they take space", "removes them"},
		{"S009", Error, "an open segment's newest bytes are neither in its file nor in the rows", "the tree cannot be loaded", "writes the file anew from what is there, sealed"},
		{"S010", Error, "bytes that several chunks name are not counted as shared", "removing one file destroys another's data", "counts them as shared"},
		{"S011", Error, "shared pieces overlap, or lie outside their segment", "space is freed too early or never", "counts them anew"},
		{"S012", Note, "a block of a segment is damaged that no row names", "none", "nothing: repacking leaves it out"},
		{"S013", Note, "a file among the segments that is none", "none", "nothing"},
		{"S014", Error, "rows name a segment that has no row; its file is there", "files with data in it answer EIO", "writes the row anew from the file"},
		{"S015", Error, "a segment has records in two trees", "one of them cannot read its files", "nothing: restore from a backup"},
	}
}

// files are the findings of the server's own files.
func files() []Entry {
	return []Entry{
		{"F001", Error, "a file in which the server keeps mounts, imports or exports is damaged", "the server does not start", "moves it to the folder \"damaged\"; mounts that it lists do not come back, half-done imports and exports that it lists stay as disks and checkpoints"},
	}
}

// leaks are the findings of what nothing needs.
func leaks() []Entry {
	return []Entry{
		{"L001", Leak, "versions that no head, checkpoint or fork needs", "they take space", "removes them"},
		{"L002", Leak, "tombstones with nothing below them", "they take a little space", "removes them"},
	}
}

// Of returns what a code means.
func Of(code string) Entry {
	for _, e := range All() {
		if e.Code == code {
			return e
		}
	}
	return Entry{Code: code, Severity: Error, Meaning: "a finding without an entry"}
}
