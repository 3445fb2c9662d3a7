package mem

import (
	"bytes"
	"testing"
)

// Debug builds overwrite what is freed, others leave it as it is.
func TestScribble(t *testing.T) {
	b := []byte("freed")
	Scribble(b)
	want := []byte("freed")
	if Debug {
		want = bytes.Repeat([]byte{0xff}, len(b))
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%q", b)
	}
}
