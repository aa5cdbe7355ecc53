package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"tine.dev/tine/internal/tine"
)

// print writes the result: as JSON, or as text by the function.
func (c *cli) print(v any, text func()) error {
	if !c.json {
		text()
		return nil
	}
	enc := json.NewEncoder(c.env.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return tine.Errorf(tine.KindIO, "print the result: %w", err)
	}
	return nil
}

func (c *cli) say(format string, args ...any) { fmt.Fprintf(c.env.stdout, format+"\n", args...) }

// written is standard output, and remembers that it could not be written: a
// command that prints text does not look, and must not end as if it had been
// read.
type written struct {
	w   io.Writer
	err error // the first
}

// Write writes through.
func (o *written) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// table prints aligned columns under their titles. What a name or path holds
// cannot make lines or columns of its own.
func (c *cli) table(titles []string, rows [][]string) {
	w := tabwriter.NewWriter(c.env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(titles, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
}

// fields prints a name and a value a line.
func (c *cli) fields(pairs ...string) {
	w := tabwriter.NewWriter(c.env.stdout, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s:\t%s\n", pairs[i], printable(pairs[i+1]))
		}
	}
	_ = w.Flush()
}

// size prints bytes for people: three digits and a binary unit.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 999.5 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	digits := 2
	switch {
	case v >= 99.95:
		digits = 0
	case v >= 9.995:
		digits = 1
	}
	return fmt.Sprintf("%.*f %ciB", digits, v, units[u])
}

// at prints a time as the user's clock shows it.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural counts things: "1 file", "2 files".
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "y") {
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(thing, "y"))
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
