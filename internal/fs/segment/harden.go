package segment

import (
	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Hardened is what a commit carries to make a prefix of a segment durable.
// Once the commit is durable, the file up to Synced and all tail rows not
// dropped cover the prefix.
type Hardened struct {
	Synced         int64         // for the location row; a block boundary, at most the prefix
	Tails          []record.Tail // rows to add
	DropTailsBelow int64         // rows that end at or before this offset may be deleted
}

// Harden makes the payload below upto durable, as far as it is not: if at most
// tailMaxBytes of it lie beyond what the file has durable, those that no
// earlier Harden returned are returned to ride in the commit; else full blocks
// are flushed, and only what follows the last one rides. The caller's commits
// must become durable in the order of its calls, for a tail is returned once.
// Appends and reads go on meanwhile.
// Errors: KindInvalid for an upto beyond the end; KindIO for good when a flush
// failed, now or before: nothing can be said of what was written since the
// last one that did not.
func (w *Writer) Harden(upto, tailMaxBytes int64) (Hardened, error) {
	w.hardenMu.Lock()
	defer w.hardenMu.Unlock()
	w.mu.RLock()
	failed, gone, end, durable, synced, sealed := w.failed, w.gone, w.written+w.fill, w.durable, w.synced, w.sealed
	w.mu.RUnlock()
	switch {
	case failed != nil:
		return Hardened{}, failed
	case gone:
		return Hardened{}, tine.Errorf(tine.KindInvalid, "segment %s was abandoned", w.ID())
	case upto < 0 || upto > end:
		return Hardened{}, tine.Errorf(tine.KindInvalid, "segment %s ends at %d, before %d", w.ID(), end, upto)
	}
	whole := upto - upto%BlockBytes
	synced = max(synced, min(durable, whole)) // an earlier flush took more than it was asked for
	if upto-synced > tailMaxBytes && whole > synced {
		if err := w.flush(whole); err != nil {
			return Hardened{}, err
		}
		synced = whole
	}
	h := Hardened{Synced: synced, DropTailsBelow: synced}
	if from := max(synced, w.ridden); from < upto {
		b, err := w.tail(from, upto, sealed)
		if err != nil {
			return Hardened{}, err
		}
		h.Tails = []record.Tail{{Segment: w.ID(), Off: from, Bytes: b}}
		w.ridden = upto
	}
	w.mu.Lock()
	w.synced = synced
	w.mu.Unlock()
	return h, nil
}

// tail reads what rides in a commit. hardenMu is held, which keeps the file of
// a segment that is not sealed open; that of a sealed one is not the Writer's
// any more.
func (w *Writer) tail(from, upto int64, sealed *record.Segment) ([]byte, error) {
	b := make([]byte, upto-from)
	if sealed == nil {
		return b, w.readAt(b, from)
	}
	h, err := w.s.Acquire(w.ID(), *sealed)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	return b, h.ReadAt(b, from)
}

// flush makes the file durable up to need at least, and all that is written
// now if it has to work at all.
func (w *Writer) flush(need int64) error {
	w.flushMu.Lock()
	defer w.flushMu.Unlock()
	w.mu.RLock()
	failed, written, durable := w.failed, w.written, w.durable
	w.mu.RUnlock()
	switch {
	case failed != nil:
		return failed
	case need <= durable:
		return nil
	case w.flushesEnd:
		return tine.Errorf(tine.KindInvalid, "segment %s was abandoned", w.ID())
	}
	w.s.o.Crash.At(crashpoint.SegmentWritten)
	if err := w.flushFile(); err != nil {
		return err
	}
	w.mu.Lock()
	w.durable = written
	w.mu.Unlock()
	w.s.o.Crash.At(crashpoint.SegmentSynced)
	return nil
}

// flushFile flushes the file and, the first time, its name. A flush that
// failed is never repeated (I20): the kernel drops the pages it could not write and
// calls the next one a success. flushMu is held.
func (w *Writer) flushFile() error {
	if err := w.f.rd.SyncData(); err != nil {
		// Even a full device is for good here: the data is gone.
		err := tine.Errorf(tine.KindIO, "flush %s: %w", w.f.path, err).
			WithHint("check the device that holds the data directory and the kernel's log, then open the disk again")
		w.fail(err)
		return err
	}
	if w.entryMade {
		return nil
	}
	if err := w.s.flushEntry(w.ID()); err != nil {
		err := tine.Errorf(tine.KindIO, "make the name of %s durable: %w", w.f.path, err)
		w.fail(err)
		return err
	}
	w.entryMade = true
	return nil
}

// push asks the device to start on what was written, once enough has come
// together, without waiting. appendMu is held.
func (w *Writer) push() {
	if w.written-w.pushed < w.s.o.PushBytes || !w.pushing.CompareAndSwap(false, true) {
		return
	}
	w.pushed = w.written
	go w.pushNow(w.written)
}

// pushNow runs beside appends, because starting may wait for an earlier start
// to finish, or on some file systems be a whole flush. Only a flush by
// flushFile counts as durable.
func (w *Writer) pushNow(written int64) {
	defer w.pushing.Store(false)
	w.flushMu.Lock()
	defer w.flushMu.Unlock()
	if w.flushesEnd {
		return
	}
	full, err := w.f.rd.SyncTo(headerBytes + written/BlockBytes*blockPhysical)
	if err != nil {
		w.fail(tine.Errorf(tine.KindIO, "write back %s: %w", w.f.path, err).
			WithHint("check the device that holds the data directory and the kernel's log, then open the disk again"))
		return
	}
	if full && w.entryMade {
		w.mu.Lock()
		w.durable = max(w.durable, written)
		w.mu.Unlock()
	}
}

// Seal ends the segment: it writes the last block and the footer and flushes.
// The row it returns says sealed, with Generation, End, Physical and Created;
// Timeline is the caller's to set. Until a commit with that row is durable,
// the earlier row and its tails stay right: recovery starts from them.
//
// Handles stay valid, and Acquire serves the segment as sealed. Sealing again
// returns the same row. Errors: KindNoSpace, after which it can be tried
// again; KindIO for good; KindInvalid after Abandon.
func (w *Writer) Seal() (record.Segment, error) {
	w.hardenMu.Lock()
	defer w.hardenMu.Unlock()
	w.appendMu.Lock()
	defer w.appendMu.Unlock()
	w.flushMu.Lock()
	defer w.flushMu.Unlock()
	w.mu.RLock()
	failed, sealed, end := w.failed, w.sealed, w.written+w.fill
	w.mu.RUnlock()
	switch {
	case sealed != nil:
		return *sealed, nil
	case failed != nil:
		return record.Segment{}, failed
	case w.wr == nil:
		return record.Segment{}, tine.Errorf(tine.KindInvalid, "segment %s was abandoned", w.ID())
	}
	l := wholeLayout(end)
	if err := w.writeEnd(l); err != nil {
		return record.Segment{}, err
	}
	w.s.o.Crash.At(crashpoint.SegmentSealed)
	row := record.Segment{
		State: record.SegmentSealed, Generation: w.f.key.generation, End: end, Synced: end,
		Physical: l.physical, Created: w.created,
	}
	w.mu.Lock()
	w.sealed, w.durable = &row, w.written
	w.mu.Unlock()
	w.f.layout.Store(l)
	w.release()
	return row, nil
}

// writeEnd writes and flushes what a sealed file has and an open one has not.
// appendMu and flushMu are held.
func (w *Writer) writeEnd(l *layout) error {
	if w.fill > 0 {
		b := w.block[:w.fill+sumBytes]
		putSum(w.f.seed, w.written/BlockBytes, b)
		if _, err := w.wr.WriteAt(b, headerBytes+w.written/BlockBytes*blockPhysical); err != nil {
			return w.writeError(err)
		}
	}
	w.s.o.Crash.At(crashpoint.SegmentSealing)
	if _, err := w.wr.WriteAt(l.encodeFooter(w.ID(), w.f.key.generation), l.footerOff()); err != nil {
		return w.writeError(err)
	}
	if w.overhang {
		if err := truncate(w.wr, w.f.path, l.physical); err != nil {
			w.fail(err)
			return err
		}
	}
	if err := w.flushFile(); err != nil {
		return err
	}
	w.s.bytes.Add(l.physical - headerBytes - w.written/BlockBytes*blockPhysical)
	return nil
}

// release ends the Writer's own use of the file. hardenMu, appendMu and
// flushMu are held.
func (w *Writer) release() {
	w.flushesEnd = true
	w.closeWriting()
	w.s.unpin(w.f)
}

// Abandon closes the segment without flushing or sealing: the process is going
// away, or the state it belongs to is lost. Reads through Handles fail with
// KindStale afterwards. It waits for an append or flush under way. After Seal
// it does nothing.
func (w *Writer) Abandon() {
	w.hardenMu.Lock()
	defer w.hardenMu.Unlock()
	w.appendMu.Lock()
	defer w.appendMu.Unlock()
	w.flushMu.Lock()
	defer w.flushMu.Unlock()
	if w.wr == nil {
		return
	}
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.release()
}
