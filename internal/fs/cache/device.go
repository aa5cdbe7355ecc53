package cache

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A file, format 1. Integers are little-endian, the checksum is CRC-32C.
//
//	offset size
//	 0      8   magic "tinefrm1"
//	 8     16   the object: the first 16 bytes of the SHA-256 of its name
//	24      8   number of the frame
//	32      4   length of the frame
//	36      4   checksum of bytes 0 to 35 and of the frame
//	40      n   the frame
//
// Its name is DIR/ab/abcd....NUMBER: the object in hexadecimal, in a
// directory of its first two digits, and the number of the frame. A program that
// knows another format takes the file for damaged and removes it.
const (
	fileHeader = 40
	fileMagic  = "tinefrm1"
	// minCost is what a file counts at least.
	minCost = 16 << 10
	// blockBytes is what space is given out in by most file systems.
	blockBytes = 4 << 10
	// maxFrame bounds what a file may claim to hold.
	maxFrame = 64 << 20
	// pause is for how long nothing is written after a write that failed.
	pause = time.Minute

	writeCategory vfs.DiskWriteCategory = "tine-cache"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// costOf is what the file of a frame of n bytes counts.
func costOf(n int64) int64 {
	return max(minCost, (n+fileHeader+blockBytes-1)/blockBytes*blockBytes)
}

func (c *Cache) dir(object objectID) string {
	return c.o.FS.PathJoin(c.o.Dir, hex.EncodeToString(object[:1]))
}

func (c *Cache) path(id frameID) string {
	return c.o.FS.PathJoin(c.dir(id.object), hex.EncodeToString(id.object[:])+"."+strconv.FormatInt(id.frame, 10))
}

func parseName(name string) (frameID, bool) {
	var id frameID
	object, frame, ok := strings.Cut(name, ".")
	if !ok || len(object) != 2*len(id.object) {
		return id, false
	}
	if _, err := hex.Decode(id.object[:], []byte(object)); err != nil {
		return id, false
	}
	n, err := strconv.ParseInt(frame, 10, 64)
	id.frame = n
	return id, err == nil
}

// encode returns the file of the frame.
func encode(id frameID, data []byte) []byte {
	b := make([]byte, 0, fileHeader+len(data))
	b = append(b, fileMagic...)
	b = append(b, id.object[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(id.frame))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, data))
	return append(b, data...)
}

// intact reports whether b is the file of the frame.
func intact(id frameID, b []byte) bool {
	if len(b) < fileHeader || string(b[:8]) != fileMagic || objectID(b[8:24]) != id.object ||
		binary.LittleEndian.Uint64(b[24:]) != uint64(id.frame) || int(binary.LittleEndian.Uint32(b[32:])) != len(b)-fileHeader {
		return false
	}
	sum := crc32.Update(crc32.Checksum(b[:36], castagnoli), castagnoli, b[fileHeader:])
	return sum == binary.LittleEndian.Uint32(b[36:])
}

// read returns the frame from its file, or nil. A file that is not right is
// removed.
func (c *Cache) read(id frameID, f *flight) []byte {
	b, err := c.load(c.path(id))
	if err == nil && intact(id, b) {
		return b[fileHeader:]
	}
	c.roomMu.Lock()
	defer c.roomMu.Unlock()
	c.mu.Lock()
	if f.left {
		c.mu.Unlock()
		return nil // whoever came after us sees to it
	}
	cost := int64(0)
	n := c.files.find(id)
	if n != nil {
		cost = n.cost
		c.files.unlink(n)
	}
	if err == nil {
		c.stats.Damaged++
	}
	c.mu.Unlock()
	if n != nil || err == nil {
		c.remove(id, cost)
	}
	return nil
}

func (c *Cache) load(path string) ([]byte, error) {
	file, err := c.o.FS.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFrame {
		return nil, nil
	}
	b := make([]byte, st.Size())
	n, err := file.ReadAt(b, 0)
	if n < len(b) && err != nil {
		return nil, err
	}
	return b, nil
}

// keep writes the frame to the device, if that is of use and possible.
func (c *Cache) keep(id frameID, f *flight) {
	if !c.mayKeep(f) {
		return
	}
	defer func() {
		c.mu.Lock()
		c.pending--
		c.mu.Unlock()
	}()
	select {
	case <-c.listed:
	case <-c.life.Done():
		return
	}
	cost := costOf(int64(len(f.data)))
	if !c.reserve(cost) {
		return
	}
	err := c.write(id, f.data)
	c.mu.Lock()
	if err == nil && !f.unwanted {
		c.files.add(id, cost, struct{}{})
		c.reserved -= cost
		c.quiet = false
		c.mu.Unlock()
		return
	}
	if err != nil {
		c.stats.Skipped++
	}
	c.mu.Unlock()
	c.roomMu.Lock()
	defer c.roomMu.Unlock()
	c.remove(id, cost)
	c.mu.Lock()
	c.reserved -= cost
	c.mu.Unlock()
	if err != nil {
		c.trouble("written to", err)
	}
}

// mayKeep takes a place among the frames that wait to be written.
func (c *Cache) mayKeep(f *flight) bool {
	now := c.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.off || f.unwanted:
		return false
	case costOf(int64(len(f.data))) > c.files.max || len(f.data) > maxFrame, c.pending >= maxPending, now.Before(c.resume):
		c.stats.Skipped++
		return false
	}
	c.pending++
	return true
}

// reserve makes room for a file before it is written. It reports false if there
// can be none now.
func (c *Cache) reserve(cost int64) bool {
	c.roomMu.Lock()
	defer c.roomMu.Unlock()
	return c.makeRoom(cost)
}

// makeRoom removes files until cost fits and sets it aside. roomMu is held, so
// no other counts on the room before the files are gone.
func (c *Cache) makeRoom(cost int64) bool {
	for {
		c.mu.Lock()
		if c.off {
			c.mu.Unlock()
			return false
		}
		if c.files.fits(c.reserved + cost) {
			c.reserved += cost
			c.mu.Unlock()
			return true
		}
		n := c.files.victim()
		if n == nil {
			c.stats.Skipped++
			c.mu.Unlock()
			return false
		}
		c.stats.Evictions++
		c.mu.Unlock()
		if !c.remove(n.id, n.cost) {
			return false
		}
	}
}

// remove unlinks a file that is no longer in the index. One that cannot be
// removed stays counted, or the device would hold more than it may. roomMu is held.
func (c *Cache) remove(id frameID, cost int64) bool {
	err := c.o.FS.Remove(c.path(id))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return true
	}
	c.mu.Lock()
	c.reserved += cost
	c.mu.Unlock()
	c.trouble("cleared", err)
	return false
}

// write makes the file. It is not flushed: the checksum tells whether all of it
// has arrived.
func (c *Cache) write(id frameID, data []byte) error {
	path := c.path(id)
	file, err := c.o.FS.Create(path, writeCategory)
	if errors.Is(err, fs.ErrNotExist) {
		if err = c.o.FS.MkdirAll(c.dir(id.object), 0o700); err != nil {
			return err
		}
		file, err = c.o.FS.Create(path, writeCategory)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(encode(id, data))
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}

// trouble stops writes for a while, and says so if it has not been said.
func (c *Cache) trouble(what string, err error) {
	until := c.o.Now().Add(pause)
	c.mu.Lock()
	said := c.quiet
	c.quiet, c.resume = true, until
	c.mu.Unlock()
	if !said {
		c.o.Logger.Warn("the local cache of the store cannot be "+what+"; reads go to the store, and writing is tried again every minute",
			"dir", c.o.Dir, "error", err.Error())
	}
}

// file is what a listing tells of a frame.
type file struct {
	id       frameID
	size     int64
	modified time.Time
}

// list finds the files from before. They count as frames somebody came back to,
// for they have survived, and go in the order in which they came.
func (c *Cache) list() {
	found, err := c.walk()
	if err != nil {
		c.o.Logger.Warn("the local cache of the store cannot be used; reads go to the store", "dir", c.o.Dir, "error", err.Error())
		c.mu.Lock()
		c.off = true
		c.mu.Unlock()
		return
	}
	slices.SortFunc(found, func(a, b file) int {
		return cmp.Or(a.modified.Compare(b.modified), slices.Compare(a.id.object[:], b.id.object[:]), cmp.Compare(a.id.frame, b.id.frame))
	})
	c.mu.Lock()
	for _, f := range found {
		if c.files.lookup(f.id) == nil {
			c.files.put(f.id, costOf(f.size-fileHeader), struct{}{}, proven)
		}
	}
	c.mu.Unlock()
	c.reserve(0)
}

// walk lists the directory, which it makes if it is missing.
func (c *Cache) walk() ([]file, error) {
	if err := c.o.FS.MkdirAll(c.o.Dir, 0o700); err != nil {
		return nil, err
	}
	shards, err := c.o.FS.List(c.o.Dir)
	if err != nil {
		return nil, err
	}
	var found []file
	for _, shard := range shards {
		if len(shard) != 2 || c.life.Err() != nil {
			continue
		}
		dir := c.o.FS.PathJoin(c.o.Dir, shard)
		names, err := c.o.FS.List(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			id, ok := parseName(name)
			if !ok {
				continue
			}
			st, err := c.o.FS.Stat(c.o.FS.PathJoin(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, file{id, st.Size(), st.ModTime()})
		}
	}
	return found, nil
}
