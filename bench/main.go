// Command bench measures a mounted tine disk beside two others on the same
// machine, in the same minutes:
//
//   - native: a plain directory of the file system that tine keeps its data
//     in. What a program would have without tine.
//   - memfs: the bare in-memory file system of bench/memfs behind the same
//     kernel interface and library. What tine could at best reach.
//
// Every case is run in rounds. In a round each of the three has its turn, in
// an order that rotates from round to round, so that a machine that is busy
// for a while is busy for all. The figures are medians; a ratio is the median
// of the ratios of the rounds, for a neighbour's noise hits both sides of one
// round. A ratio of 1 means as fast, 2 twice as fast, whatever the unit.
//
// What is cold and what is warm is part of each case's name. Cold names: the
// kernel's cache of names and inodes is dropped, for all three alike, which
// takes root; the row cache of the tine server stays, as the cache of inode
// blocks does for native. Cold pages: the pages of the file, and of the
// segment files behind it, are dropped with posix_fadvise. Before a case is
// measured, what its preparation wrote is brought to the device.
//
//	go run ./bench                        everything
//	go run ./bench -quick                 smaller and fewer
//	go run ./bench -only create-4k,untar
//	go run ./bench -json FILE             also keep every sample
//	go run ./bench -spec                  the table of SPECIFICATION.md
//	go run ./bench -spec -from FILE       the same from a kept run
//
// It builds and starts a server and a memfs of its own in a temporary
// directory, below -dir, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

type options struct {
	quick  bool
	list   bool
	spec   bool
	only   string
	json   string
	from   string
	dir    string
	tine   string
	rounds int
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "smaller and fewer: to see that it works, and large changes")
	flag.BoolVar(&o.list, "list", false, "list the cases")
	flag.BoolVar(&o.spec, "spec", false, "print the table of SPECIFICATION.md instead")
	flag.StringVar(&o.only, "only", "", "run only these cases, comma separated; a name covers all that start with it")
	flag.StringVar(&o.json, "json", "", "write every sample to this `file`")
	flag.StringVar(&o.from, "from", "", "measure nothing; show what -json wrote to this `file`")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "work in a new `directory` below this one; its file system is what native means")
	flag.StringVar(&o.tine, "tine", "", "measure this `program` instead of building one")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each case; 0: 7, with -quick 3")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out, progress io.Writer) error {
	if o.from != "" {
		r, err := readReport(o.from)
		if err != nil {
			return err
		}
		return r.print(out, o.spec)
	}
	cases, err := choose(allCases(), o.only)
	if err != nil {
		return err
	}
	if o.list {
		for _, c := range cases {
			fmt.Fprintf(out, "%-16s %s\n", c.name, c.what)
		}
		return nil
	}
	b, err := setUp(ctx, o, progress)
	if err != nil {
		return err
	}
	r, err := b.measure(ctx, cases)
	if err := errors.Join(err, b.tearDown()); err != nil {
		return err
	}
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return err
		}
	}
	return r.print(out, o.spec)
}

// choose returns the cases whose names start with one of those in only.
func choose(all []benchCase, only string) ([]benchCase, error) {
	if only == "" {
		return all, nil
	}
	var chosen []benchCase
	for _, prefix := range strings.Split(only, ",") {
		n := len(chosen)
		for _, c := range all {
			if strings.HasPrefix(c.name, strings.TrimSpace(prefix)) {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("no case starts with %q; -list shows them", prefix)
		}
	}
	return chosen, nil
}
