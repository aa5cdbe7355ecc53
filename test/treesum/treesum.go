// Package treesum compares whole directory trees: the names, modes and content
// of all that is in them. Times and owners are left out, since copies and
// installers rightly differ in them.
package treesum

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// Tree is all that a directory holds: names, modes, sizes, link targets, and
// the SHA-256 of every file.
type Tree struct {
	entries []entry
	Files   int   // regular files
	Bytes   int64 // in them
}

type entry struct {
	path string // relative
	what string // mode, and the hash of the content or the target of the link
}

// Read reads everything below dir, with one reader for each processor. The tree
// must not change meanwhile.
func Read(ctx context.Context, dir string) (Tree, error) {
	var t Tree
	var pending []int // the entries that are files
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			return ctx.Err()
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{path: path[len(dir)+1:], what: info.Mode().String()}
		switch {
		case info.Mode().IsRegular():
			pending = append(pending, len(t.entries))
			t.Files++
			t.Bytes += info.Size()
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			e.what += " " + target
		}
		t.entries = append(t.entries, e)
		return nil
	})
	if err == nil {
		err = t.hashAll(ctx, dir, pending)
	}
	slices.SortFunc(t.entries, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	return t, err
}

// hashAll adds the hashes of the files to the entries with these indexes.
func (t *Tree) hashAll(ctx context.Context, dir string, pending []int) error {
	work := make(chan int)
	failed := make(chan error, runtime.NumCPU())
	var readers sync.WaitGroup
	for range runtime.NumCPU() {
		readers.Go(func() {
			var first error
			for i := range work {
				sum, err := HashFile(filepath.Join(dir, t.entries[i].path))
				t.entries[i].what += " " + sum
				first = cmp.Or(first, err)
			}
			failed <- first
		})
	}
	for _, i := range pending {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	readers.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// HashFile returns the SHA-256 of a file, in hexadecimal.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Sum is one hash over everything in the tree, in hexadecimal.
func (t Tree) Sum() string {
	h := sha256.New()
	for _, e := range t.entries {
		fmt.Fprintf(h, "%q %q\n", e.path, e.what)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Same returns nil if two trees are the same, else an error that says how many
// entries of the tree called what differ from what they should be, and names a
// few.
func Same(what string, got, want Tree) error {
	if got.Sum() == want.Sum() {
		return nil
	}
	in := map[string]string{}
	for _, e := range want.entries {
		in[e.path] = e.what
	}
	var diffs []string
	for _, e := range got.entries {
		if w, ok := in[e.path]; !ok {
			diffs = append(diffs, e.path+" is there, and should not be")
		} else if w != e.what {
			diffs = append(diffs, fmt.Sprintf("%s is %q, and should be %q", e.path, e.what, w))
		}
		delete(in, e.path)
	}
	for path := range in {
		diffs = append(diffs, path+" is missing")
	}
	return fmt.Errorf("%s differs in %d places, such as %q", what, len(diffs), diffs[:min(5, len(diffs))])
}
