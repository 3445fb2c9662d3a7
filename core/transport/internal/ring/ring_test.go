package ring

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"
	"unsafe"

	"sar/core/mem"
	"sar/core/transport"
)

func memory(t testing.TB, max int) []byte {
	m, err := mem.Make[byte](mem.Scratch, Bytes(max))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m.Data
}

func TestMaxPayload(t *testing.T) {
	for _, total := range []int{4096, 5000, 8192, 65536, 1<<20 + 1, 1 << 33} {
		max, err := MaxPayload(total)
		if err != nil {
			t.Fatal(err)
		}
		if used := 2 * Bytes(max); used > total || max%64 != 0 || max < 64 || max > transport.MaxFrame {
			t.Errorf("%d bytes: frames of %d use %d", total, max, used)
		}
	}
	if _, err := MaxPayload(4095); err == nil {
		t.Error("a link of less than a page was made")
	}
}

// FuzzRing lets a hostile producer write anything into a ring: the consumer
// returns frames within the ring's data, or a FrameError, and never faults.
func FuzzRing(f *testing.F) {
	const max = 192
	seed := func(sizes ...int) {
		b := make([]byte, Bytes(max)+slot)
		b = b[-uintptr(unsafe.Pointer(&b[0]))&(slot-1):][:Bytes(max)]
		state := NewState(0)
		p := NewProducer(b, max, 1, state, func() {})
		c := NewConsumer(b, max, 1, NewState(0), func() {})
		for i, n := range sizes {
			if i > 0 { // leave the last frame in the ring
				if _, err := c.Next(time.Now()); err != nil {
					f.Fatal(err)
				}
				c.Release()
			}
			if _, err := p.Reserve(n, time.Now()); err != nil {
				f.Fatal(err)
			}
			if _, err := p.Commit(transport.Tag{Seq: uint64(i)}); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b)
	}
	seed(0)
	seed(192)
	seed(1, 64, 100, 192)
	seed(192, 192, 64, 192)
	f.Fuzz(func(t *testing.T, content []byte) {
		b := memory(t, max)
		copy(b, content)
		// The consumer starts at 0 whatever head says. A tail that fits its
		// checks lets the fuzzer get past them more often.
		tail := binary.LittleEndian.Uint64(b)
		binary.LittleEndian.PutUint64(b, tail%uint64(2*len(b)))
		c := NewConsumer(b, max, 1, NewState(0), func() {})
		for range 64 {
			frame, err := c.Next(time.Unix(1, 0))
			if err != nil {
				var damaged *transport.FrameError
				var late *transport.TimeoutError
				if !errors.As(err, &damaged) && !errors.As(err, &late) {
					t.Fatalf("%T %v", err, err)
				}
				return
			}
			if len(frame.Payload) > 0 {
				at := uintptr(unsafe.Pointer(&frame.Payload[0])) - uintptr(unsafe.Pointer(&b[0]))
				if at < control || at+uintptr(len(frame.Payload)) > uintptr(Bytes(max)) {
					t.Fatalf("payload of %d at %d", len(frame.Payload), at)
				}
			}
			c.Release()
		}
	})
}
