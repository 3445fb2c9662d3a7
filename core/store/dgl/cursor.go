package dgl

import (
	"encoding/binary"
	"fmt"

	"sar/core/store/disk"
)

// cursor reads little-endian values one after another: the headers of a file,
// whose checksums were checked when it was opened. The first failure
// sticks: later reads return zeros, so that callers may check err once per
// group, before they act on what they read.
type cursor struct {
	f   *disk.File
	off int64
	err error

	win    [4096]byte
	winOff int64
	winLen int
}

func newCursor(f *disk.File) *cursor { return &cursor{f: f} }

// want holds what was read at a byte against what it has to be, unless something failed before.
func (c *cursor) want(ok bool, off int64, want, got string, args ...any) {
	if !ok && c.err == nil {
		c.err = c.f.Bad(off, want, got, args...)
	}
}

func (c *cursor) left() int64 { return c.f.Size - c.off }

// take returns the next n ≤ 4096 bytes, valid until the next read.
func (c *cursor) take(n int, what string) []byte {
	if c.room(int64(n), what); c.err != nil {
		return make([]byte, n)
	}
	if c.off < c.winOff || c.off+int64(n) > c.winOff+int64(c.winLen) {
		c.winOff, c.winLen = c.off, int(min(int64(len(c.win)), c.left()))
		if c.err = c.f.ReadRaw(c.win[:c.winLen], c.off, what); c.err != nil {
			c.winLen = 0
			return make([]byte, n)
		}
	}
	at := c.off - c.winOff
	c.off += int64(n)
	return c.win[at : at+int64(n)]
}

func (c *cursor) u8(what string) uint8 { return c.take(1, what)[0] }

func (c *cursor) u16(what string) uint16 { return binary.LittleEndian.Uint16(c.take(2, what)) }

func (c *cursor) i32(what string) int32 { return int32(binary.LittleEndian.Uint32(c.take(4, what))) }

func (c *cursor) u64(what string) uint64 { return binary.LittleEndian.Uint64(c.take(8, what)) }

func (c *cursor) i64(what string) int64 { return int64(c.u64(what)) }

func (c *cursor) boolean(what string) bool {
	at := c.off
	v := c.u8(what)
	c.want(v <= 1, at, what+", 0 or 1", "%d", v)
	return v == 1
}

func (c *cursor) magic(want uint64, what string) {
	at := c.off
	got := c.u64("the magic number of " + what)
	c.want(got == want, at, fmt.Sprintf("the magic number %#016x of %s", want, what), "%#016x", got)
}

// exactly reads a u64 that has one legal value.
func (c *cursor) exactly(want uint64, what string) {
	at := c.off
	got := c.u64(what)
	c.want(got == want, at, fmt.Sprintf("%s %d", what, want), "%d", got)
}

// count reads the length of a vector whose items take at least itemBytes each.
func (c *cursor) count(itemBytes int64, what string) int64 {
	at := c.off
	n := c.u64("the number of " + what)
	c.want(n <= uint64(c.left()/itemBytes), at,
		fmt.Sprintf("a number of %s that fits the %d bytes left of the file", what, c.left()), "%d", n)
	if c.err != nil {
		return 0
	}
	return int64(n)
}

func (c *cursor) str(what string) string {
	at := c.off
	n := c.count(1, "characters of "+what)
	c.want(n <= disk.MaxName, at, fmt.Sprintf("%s of at most %d characters", what, disk.MaxName), "%d", n)
	if c.err != nil {
		return ""
	}
	return string(c.take(int(n), what))
}

// skip moves over n bytes that must be there.
func (c *cursor) skip(n int64, what string) {
	if c.room(n, what); c.err == nil {
		c.off += n
	}
}

// room wants n bytes to be there.
func (c *cursor) room(n int64, what string) {
	c.want(n >= 0 && n <= c.left(), c.off, fmt.Sprintf("%d bytes of %s", n, what), "the end of the file after %d",
		c.left())
}
