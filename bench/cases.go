package main

// allCases returns every case, in the order of the table.
func allCases() []benchCase {
	var all []benchCase
	for _, group := range [][]benchCase{smallFileCases(), largeFileCases(), syncCases(), treeCases(), forkCases(), engineCases()} {
		all = append(all, group...)
	}
	return all
}
