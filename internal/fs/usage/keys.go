package usage

import (
	"iter"

	"tine.dev/tine/internal/fs/record"
)

// keys is a sequence of logical keys, some of them more than once. An error
// ends it.
type keys = iter.Seq2[record.Logical, error]

// listed yields the keys of a list.
func listed(ks []record.Logical) keys {
	return func(yield func(record.Logical, error) bool) {
		for _, k := range ks {
			if !yield(k, nil) {
				return
			}
		}
	}
}

// eachOnce calls fn once for every key that any of the sequences yields.
func eachOnce(seqs []keys, fn func(record.Logical) error) error {
	seen := map[record.Logical]struct{}{}
	for _, seq := range seqs {
		for k, err := range seq {
			if _, twice := seen[k]; twice && err == nil {
				continue
			}
			seen[k] = struct{}{}
			if err == nil {
				err = fn(k)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fewer returns the keys of the shorter of two sequences. It takes both in
// step, so it costs as much as the shorter.
func fewer(a, b keys) ([]record.Logical, error) {
	var lists [2][]record.Logical
	var nexts [2]func() (record.Logical, error, bool)
	for i, seq := range []keys{a, b} {
		next, stop := iter.Pull2(seq)
		defer stop()
		nexts[i] = next
	}
	for {
		for i, next := range nexts {
			k, err, ok := next()
			if err != nil || !ok {
				return lists[i], err
			}
			if n := len(lists[i]); n == 0 || lists[i][n-1] != k {
				lists[i] = append(lists[i], k)
			}
		}
	}
}
