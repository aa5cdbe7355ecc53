package reclaim

// RunsOnFree returns how the number of runs of a piece changes when a version
// is freed. self tells whether that version names any byte of the piece;
// older and newer, whether the versions beside it do (false where there is
// none). A version that stood alone takes its run with it; one that stood
// between two runs and named nothing lets them join.
func RunsOnFree(older, self, newer bool) int64 {
	switch {
	case self && !older && !newer, !self && older && newer:
		return -1
	}
	return 0
}

// RunsOnAdd returns how the number of runs changes when a new newest version
// is put after the one that older tells of.
func RunsOnAdd(older, added bool) int64 {
	if added && !older {
		return 1
	}
	return 0
}

// RunsOnReplace returns how the number of runs changes when the newest
// version gives way to another in its place: old and fresh tell of the two,
// older of the version before them.
func RunsOnReplace(older, old, fresh bool) int64 {
	return RunsOnAdd(older, fresh) - RunsOnAdd(older, old)
}
