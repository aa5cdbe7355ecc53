package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// The tests of this file run several clients at once and ask porcupine whether
// there is an order of their calls, each between its start and its end, in
// which all the answers are right.

const (
	linearClients = 4
	linearCalls   = 24 // of each client
)

// client is one of several that work at once.
type client struct {
	s *volume.Session
	h *volume.Host
	r *rand.Rand
	n int // its number
}

// together runs rounds of clients and checks each history against the model.
func together(t *testing.T, model porcupine.Model, prepare func(*volume.Session) error, call func(*client, int) (in, out any)) {
	n := 30
	if *flagRounds > 0 {
		n = *flagRounds
	}
	t.Logf("seeds %d to %d", *flagSeed, *flagSeed+uint64(n)-1)
	for seed := *flagSeed; seed < *flagSeed+uint64(n); seed++ {
		ops, err := history(seed, prepare, call)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if result := porcupine.CheckOperationsTimeout(model, ops, 20*time.Second); result != porcupine.Ok {
			var b strings.Builder
			for _, o := range ops {
				fmt.Fprintf(&b, "%8d %8d client %d %s\n", o.Call, o.Return, o.ClientId, model.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("seed %d: the history is %s:\n%sreplay: go test ./internal/sim -count=1 -run '%s$' -sim.seed=%d -sim.rounds=1",
				seed, result, b.String(), t.Name(), seed)
		}
	}
}

// history runs one round. Times are positions in one order of all starts and
// ends, so that the clock's grain does not matter.
func history(seed uint64, prepare func(*volume.Session) error, call func(*client, int) (in, out any)) ([]porcupine.Operation, error) {
	ctx := context.Background()
	h, err := volume.Open(ctx, volume.Options{Dir: "/data", FS: vfs.NewMem(), CommitInterval: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer h.Close(ctx)
	if _, err := h.CreateDisk(ctx, caller, "d"); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var now int64
	tick := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		now++
		return now
	}
	var ops []porcupine.Operation
	var wg sync.WaitGroup
	for i := range linearClients {
		s, err := h.Attach(ctx, caller, volume.Ref{Disk: "d"}, volume.AttachOptions{Label: fmt.Sprintf("client %d", i)})
		if err != nil {
			return nil, err
		}
		defer s.Detach(ctx)
		if i == 0 {
			if err := prepare(s); err != nil {
				return nil, err
			}
		}
		c := &client{s: s, h: h, r: rand.New(rand.NewPCG(seed, uint64(i))), n: i}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range linearCalls {
				start := tick()
				in, out := call(c, k)
				end := tick()
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: i, Input: in, Output: out, Call: start, Return: end})
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return ops, nil
}

// --- names -------------------------------------------------------------------

type nameCall struct {
	op   string
	a, b int // names, by number
}

type nameAnswer struct {
	ino  tine.Ino
	kind string // "" if it worked
	all  string // of a listing
}

const linearNames = 3

type nameState [linearNames]tine.Ino

func answer(ino tine.Ino, err error) nameAnswer {
	if err != nil {
		return nameAnswer{kind: tine.KindOf(err).String()}
	}
	return nameAnswer{ino: ino}
}

func (s nameState) list() string {
	var b strings.Builder
	for i, ino := range s {
		if ino != 0 {
			fmt.Fprintf(&b, "n%d=%d ", i, ino)
		}
	}
	return b.String()
}

// step says what a call may answer in a state, and the state after it.
func (s nameState) step(c nameCall, out nameAnswer) (bool, nameState) {
	exists, missing := tine.KindExists.String(), tine.KindNotFound.String()
	switch c.op {
	case "create":
		if s[c.a] != 0 {
			return out.kind == exists, s
		}
		s[c.a] = out.ino
		return out.kind == "", s
	case "unlink":
		if s[c.a] == 0 {
			return out.kind == missing, s
		}
		s[c.a] = 0
		return out.kind == "", s
	case "lookup":
		if s[c.a] == 0 {
			return out.kind == missing, s
		}
		return out.kind == "" && out.ino == s[c.a], s
	case "list":
		return out.kind == "" && out.all == s.list(), s
	}
	exchange, keep := c.op == "exchange", c.op == "move"
	switch {
	case s[c.a] == 0 || exchange && s[c.b] == 0:
		return out.kind == missing, s
	case keep && s[c.b] != 0:
		return out.kind == exists, s
	case c.a == c.b || s[c.a] == s[c.b]:
		return out.kind == "", s
	case exchange:
		s[c.a], s[c.b] = s[c.b], s[c.a]
	default:
		s[c.a], s[c.b] = 0, s[c.a]
	}
	return out.kind == "", s
}

func callName(c *client, _ int) (any, any) {
	in := nameCall{op: pick(c.r, []string{"create", "create", "unlink", "lookup", "list", "rename", "move", "exchange"}),
		a: c.r.IntN(linearNames), b: c.r.IntN(linearNames)}
	a, b := fmt.Sprintf("n%d", in.a), fmt.Sprintf("n%d", in.b)
	who := volume.Cred{}
	switch in.op {
	case "create":
		f, attr, _, err := c.s.Create(who, volume.Root, a, 0o644, true)
		if err == nil {
			err = f.Close()
		}
		return in, answer(attr.Ino, err)
	case "unlink":
		return in, answer(0, c.s.Unlink(who, volume.Root, a))
	case "lookup":
		attr, _, err := c.s.Lookup(volume.Root, a)
		return in, answer(attr.Ino, err)
	case "list":
		var s nameState
		d, err := c.s.OpenDir(volume.Root)
		if err == nil {
			err = d.Read(0, func(e volume.DirEntry) bool {
				s[e.Name[1]-'0'] = e.Ino
				return true
			})
			d.Close()
		}
		out := answer(0, err)
		out.all = s.list()
		return in, out
	}
	flags := map[string]uint32{"rename": 0, "move": posix.NoReplace, "exchange": posix.Exchange}[in.op]
	return in, answer(0, c.s.Rename(who, volume.Root, a, volume.Root, b, flags))
}

func TestNamesAreLinearizable(t *testing.T) {
	model := porcupine.Model{
		Init: func() any { return nameState{} },
		Step: func(state, in, out any) (bool, any) {
			ok, next := state.(nameState).step(in.(nameCall), out.(nameAnswer))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
	together(t, model, func(*volume.Session) error { return nil }, callName)
}

// --- content -----------------------------------------------------------------

type dataCall struct {
	op   string
	off  int64
	data string
}

type dataAnswer struct {
	off  int64
	data string
	err  string
}

func stepData(state string, c dataCall, out dataAnswer) (bool, string) {
	if out.err != "" {
		return false, state
	}
	switch c.op {
	case "write":
		b := []byte(state)
		for int64(len(b)) < c.off+int64(len(c.data)) {
			b = append(b, 0)
		}
		copy(b[c.off:], c.data)
		return true, string(b)
	case "append":
		return out.off == int64(len(state)), state + c.data
	case "truncate":
		return true, state[:min(len(state), int(c.off))] + strings.Repeat("\x00", max(0, int(c.off)-len(state)))
	}
	return out.data == state, state // read, and reading a fork
}

func callData(c *client, k int) (any, any) {
	in := dataCall{op: pick(c.r, []string{"write", "write", "append", "append", "read", "read", "truncate", "fork"}), off: c.r.Int64N(3) * 1500}
	in.data = strings.Repeat(fmt.Sprintf("%d.%02d ", c.n, k), 1+c.r.IntN(600))
	var out dataAnswer
	err := func() error {
		s := c.s
		if in.op == "fork" {
			name := fmt.Sprintf("f%d-%d", c.n, k)
			ctx := context.Background()
			if _, err := c.h.Fork(ctx, caller, volume.Ref{Disk: "d"}, []string{name}, volume.WaitRunnable); err != nil {
				return err
			}
			fork, err := c.h.Attach(ctx, caller, volume.Ref{Disk: name}, volume.AttachOptions{Label: "fork"})
			if err != nil {
				return err
			}
			defer fork.Detach(ctx)
			s = fork
		}
		_, n, err := s.Lookup(volume.Root, "file")
		if err != nil {
			return err
		}
		f, err := s.Open(n)
		if err != nil {
			return err
		}
		defer f.Close()
		switch in.op {
		case "write":
			_, err = f.WriteAt(volume.Cred{}, []byte(in.data), in.off)
		case "append":
			out.off, _, err = f.Append(volume.Cred{}, []byte(in.data))
		case "truncate":
			err = f.Truncate(volume.Cred{}, in.off)
		default:
			buf := make([]byte, 1<<20)
			n, e := f.ReadAt(buf, 0)
			out.data, err = string(buf[:n]), e
		}
		return err
	}()
	if err != nil {
		out.err = err.Error()
	}
	return in, out
}

// TestContentIsLinearizable has the clients write to, append to, truncate and
// read one file, and read it in forks that they make: a fork shows every write
// that had returned before it was asked for, and no half one.
func TestContentIsLinearizable(t *testing.T) {
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, in, out any) (bool, any) {
			ok, next := stepData(state.(string), in.(dataCall), out.(dataAnswer))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%.60v -> %.60v", in, out) },
	}
	prepare := func(s *volume.Session) error {
		f, _, _, err := s.Create(volume.Cred{}, volume.Root, "file", 0o644, true)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	together(t, model, prepare, callData)
}

func TestTheCheckersRefuseWrongHistories(t *testing.T) {
	if ok, _ := (nameState{5}).step(nameCall{op: "create"}, nameAnswer{ino: 6}); ok {
		t.Error("an exclusive create over a name passes")
	}
	if ok, _ := (nameState{5, 6}).step(nameCall{op: "move", b: 1}, nameAnswer{}); ok {
		t.Error("a rename that must not replace passes")
	}
	if ok, _ := stepData("abc", dataCall{op: "append", data: "d"}, dataAnswer{off: 2}); ok {
		t.Error("a lost append passes")
	}
	if ok, _ := stepData("abc", dataCall{op: "fork"}, dataAnswer{data: "ab"}); ok {
		t.Error("a fork that lacks a write passes")
	}
}
