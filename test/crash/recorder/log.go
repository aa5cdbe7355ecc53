// Package recorder is a file system that writes down what is done to it: every
// change and every flush, in order. It passes all operations on to a backing
// directory, so a program that keeps its data in it runs as ever. What is left
// is a log from which the directory can be built as it was at any moment, and
// also as a device with a volatile cache would have left it: with what was
// written but not flushed gone.
//
// The log is a file that grows by one write for each event, before the
// operation that it records is answered. So its length, which anybody may ask
// for at any time (Position), is a clock: what was answered when the log was p
// bytes long is in the first p bytes.
//
// A flush (fsync, fdatasync, fsync of a directory) is an event of the log and
// nothing else. The backing directory is never flushed, which makes a
// recording faster than the device. sync_file_range never reaches a file
// system in user space; nothing may count on it anyway, and here nothing is
// recorded for it. Of ranges that are allocated beforehand only those that
// change the length of the file matter to the contents.
package recorder

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Op is what was done.
type Op uint8

// The operations. Paths are relative to the root of the recording, without a
// leading slash; the root is "".
const (
	Create   Op = iota // Path has the new, empty file Ino
	Write              // Data at Off of Ino
	Truncate           // Ino has Off bytes
	Mkdir              // Path is a new directory
	Link               // To is another name of Ino
	Rename             // Path is called To
	Unlink             // the name Path is gone, and the file with its last name
	Rmdir              // the directory Path is gone
	Fsync              // all of Ino that was written so far is durable
	FsyncDir           // all names in the directory Path are durable
)

var opNames = [...]string{"create", "write", "truncate", "mkdir", "link", "rename", "unlink", "rmdir", "fsync", "fsyncdir"}

// String returns the operation's name.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// IsFlush reports whether the operation makes something durable.
func (o Op) IsFlush() bool { return o == Fsync || o == FsyncDir }

// Event is one change or flush.
type Event struct {
	Op       Op
	Ino      uint64 // of the file; numbers of removed files are used again
	Path, To string
	Off      int64 // a length for Truncate
	Data     []byte
	End      int64 // the position after this event; set by Read
}

// String describes the event in a line.
func (e Event) String() string {
	return fmt.Sprintf("%s %s %s ino %d, %d bytes at %d, position %d", e.Op, e.Path, e.To, e.Ino, len(e.Data), e.Off, e.End)
}

// log appends events to a file.
type log struct {
	mu   sync.Mutex // held over an operation and its event, so that their orders agree
	file *os.File
	buf  bytes.Buffer
	enc  *gob.Encoder
}

func newLog(path string) (*log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &log{file: f}
	l.enc = gob.NewEncoder(&l.buf)
	return l, nil
}

// append writes an event down; mu is held. A recording with a hole is worse
// than none, so a failure ends the process.
func (l *log) append(e Event) {
	l.buf.Reset()
	err := l.enc.Encode(e)
	if err == nil {
		_, err = l.file.Write(l.buf.Bytes())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the recording cannot be written:", err)
		os.Exit(1)
	}
}

// Position returns how long the log at path is now.
func Position(path string) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Read returns the events of a log that nobody writes to any more.
func Read(path string) ([]Event, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// bytes.Reader is an io.ByteReader, from which the decoder takes no more
	// than it decodes.
	r := bytes.NewReader(b)
	dec := gob.NewDecoder(r)
	var events []Event
	for {
		var e Event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, event %d: %w", path, len(events), err)
		}
		e.End = int64(len(b) - r.Len())
		events = append(events, e)
	}
}
