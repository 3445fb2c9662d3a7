package storetest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"

	"sar/core/store/disk"
)

func MustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// step is the distance of the bytes at which files are damaged.
func step() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// Cut cuts a real file at every byte: always a FormatError.
func Cut(t *testing.T, path string, read func([]byte) error) {
	b := MustRead(t, path)
	if err := read(b); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for n := 0; n < len(b); n += step() {
		err := read(b[:n])
		var fe *disk.FormatError
		if !errors.As(err, &fe) {
			t.Fatalf("%s cut at %d of %d bytes: %v", path, n, len(b), err)
		}
	}
}

// Flip changes single bytes of a real file: never a panic, and nothing but FormatErrors.
func Flip(t *testing.T, path string, read func([]byte) error) {
	b := MustRead(t, path)
	noticed := 0
	for i := 0; i < len(b); i += step() {
		flip := []byte{0xff, 0x01, 0x80}[i%3]
		b[i] ^= flip
		err := read(b)
		b[i] ^= flip
		var fe *disk.FormatError
		if err != nil && !errors.As(err, &fe) {
			t.Fatalf("%s, byte %d xor %#x: %v", path, i, flip, err)
		}
		if err != nil {
			noticed++
		}
	}
	if noticed < 50/step() {
		t.Errorf("%s: only %d changes were noticed", path, noticed)
	}
}

// Bounded runs a reader on input of a fuzzer: it may fail with a FormatError
// alone, and must not take memory out of proportion to the input. The slack of
// 8 MiB is for the fuzzing engine, whose memory is counted along.
func Bounded(t *testing.T, data []byte, perByte uint64, read func([]byte) error) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	err := read(data)
	metrics.Read(s)
	if taken := s[0].Value.Uint64() - before; taken > 8<<20+perByte*uint64(len(data)) {
		t.Errorf("%d bytes of memory for an input of %d", taken, len(data))
	}
	var fe *disk.FormatError
	if err != nil && !errors.As(err, &fe) {
		t.Errorf("%v is no FormatError", err)
	}
}

func Seeds(f *testing.F, pattern string) {
	paths, _ := filepath.Glob(pattern)
	if len(paths) == 0 {
		f.Fatalf("no seeds: %s", pattern)
	}
	for _, p := range paths {
		f.Add(MustRead(f, p))
	}
}

// Resealed gives a JSON object the checksum of what it says.
func Resealed(data []byte) []byte {
	var top map[string]any
	if json.Unmarshal(data, &top) != nil || len(top) == 0 {
		return data
	}
	delete(top, "checksum")
	out, err := disk.Seal(top)
	if err != nil {
		return data
	}
	return out
}
