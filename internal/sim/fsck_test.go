package sim

import "testing"

// TestFsck runs worlds with and without crashes and checks what they leave, with
// a checker that knows only the formats: while the Host is open, and after it
// was closed.
func TestFsck(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		n := 6
		if *flagRounds > 0 {
			n = *flagRounds
		}
		t.Logf("crashes %v, seeds %d to %d", crashes, *flagSeed, *flagSeed+uint64(n)-1)
		for i := range n {
			cfg := Config{Seed: *flagSeed + uint64(i), Steps: 400, Crashes: crashes}
			w, f := run(cfg)
			if f != nil {
				t.Fatal(f)
			}
			w.host = nil
			if err := w.fsckClone(); err != nil {
				t.Fatalf("seed %d, crashes %v: %v", cfg.Seed, crashes, err)
			}
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
			err := w.fsckLive()
			w.abandon()
			if err != nil {
				t.Fatalf("seed %d, crashes %v: %v", cfg.Seed, crashes, err)
			}
		}
	}
}
