package ring

import (
	"bytes"
	"testing"
	"time"

	"sar/core/mem"
	"sar/core/transport"
)

// A frame that was given back is garbage in debug builds, also while the
// producer has not written over it.
func TestReleaseScribbles(t *testing.T) {
	b := memory(t, 64)
	p := NewProducer(b, 64, 1, NewState(0), func() {})
	c := NewConsumer(b, 64, 1, NewState(0), func() {})
	payload := []byte("rows of a peer")
	reserved, err := p.Reserve(len(payload), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	copy(reserved, payload)
	if _, err := p.Commit(transport.Tag{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	f, err := c.Next(time.Now())
	if err != nil || !bytes.Equal(f.Payload, payload) {
		t.Fatalf("%q, %v", f.Payload, err)
	}
	c.Release()
	if mem.Debug {
		payload = bytes.Repeat([]byte{0xff}, len(payload))
	}
	if !bytes.Equal(f.Payload, payload) {
		t.Errorf("%q after Release", f.Payload)
	}
}
