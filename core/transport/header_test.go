package transport

import (
	"errors"
	"testing"
)

func frameSeeds() [][]byte {
	var seeds [][]byte
	for _, s := range []struct {
		tag Tag
		n   int
	}{
		{Tag{}, 0},
		{Tag{Comm: 1, Seq: 7, Kind: 3, Dir: 1, Content: 0x1234, Flags: 0x8001, Round: 2, Chunk: 9}, 4096},
		{Tag{Comm: 1<<16 - 1, Seq: 1<<48 - 1, Kind: 255, Dir: 255, Content: 1<<32 - 1, Flags: 1<<16 - 1, Round: 1<<16 - 1,
			Chunk: 1<<32 - 1}, MaxFrame},
	} {
		b := make([]byte, HeaderSize)
		PutHeader(b, s.tag, s.n)
		seeds = append(seeds, b)
	}
	return seeds
}

func TestHeader(t *testing.T) {
	tag := Tag{Comm: 0x0102, Seq: 0x010203040506, Kind: 9, Dir: 8, Content: 0x0a0b0c0d, Flags: 0x0706, Round: 0x0504,
		Chunk: 0x03020100}
	b := make([]byte, HeaderSize)
	PutHeader(b, tag, 1000)
	if got, n, direct, err := ParseHeader(b, 3, 1000); got != tag || n != 1000 || direct || err != nil {
		t.Fatalf("%+v, %d, %v, %v", got, n, direct, err)
	}
	far := make([]byte, HeaderSize)
	PutDirectHeader(far, tag, MaxFrame)
	if got, n, direct, err := ParseHeader(far, 3, 1000); got != tag || n != MaxFrame || !direct || err != nil {
		t.Fatalf("%+v, %d, %v, %v", got, n, direct, err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"magic":    func(b []byte) []byte { b[1] = 'x'; return b },
		"version":  func(b []byte) []byte { b[4]++; return b },
		"reserved": func(b []byte) []byte { b[7] = 2; return b },
		"payload":  func(b []byte) []byte { b[8]++; return b },
		"huge":     func(b []byte) []byte { b[11] = 0xff; return b },
		"short":    func(b []byte) []byte { return b[:HeaderSize-1] },
	} {
		bad := change(append([]byte(nil), b...))
		_, _, _, err := ParseHeader(bad, 3, 1000)
		var damaged *FrameError
		if !errors.As(err, &damaged) || damaged.Peer != 3 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFrameHeader: whatever parses is within the bounds and is written back as
// it was read.
func FuzzFrameHeader(f *testing.F) {
	for _, s := range frameSeeds() {
		f.Add(s, 4096)
		f.Add(s, MaxFrame)
	}
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		tag, n, direct, err := ParseHeader(b, 1, limit)
		if err != nil {
			var damaged *FrameError
			if !errors.As(err, &damaged) {
				t.Fatalf("%T", err)
			}
			return
		}
		if n < 0 || n > limit && !direct || n > MaxFrame {
			t.Fatalf("%d bytes with a limit of %d", n, limit)
		}
		again := make([]byte, HeaderSize)
		if PutHeader(again, tag, n); direct {
			PutDirectHeader(again, tag, n)
		}
		if string(again) != string(b[:HeaderSize]) {
			t.Fatalf("%x is written back as %x", b[:HeaderSize], again)
		}
	})
}
