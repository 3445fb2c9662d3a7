package comm

import (
	"strings"
	"testing"
)

// A loss that rank 2 found names it wherever it is told, also where rank 1 has
// passed it on: between the others all may be well.
func TestToldLossNamesItsFinder(t *testing.T) {
	found := &PeerLost{Rank: 0, Host: "a", Phase: "in barrier", Reason: "no sign of life for 3.0 s"}
	told := pack(found, 2, "c").unpack(1, 2, "c")
	for _, err := range []error{told, pack(told, 1, "b").unpack(3, 1, "b")} {
		if !strings.Contains(err.Error(), "lost rank 0 on a, as rank 2 found: no sign of life") {
			t.Error(err)
		}
	}
	for from, want := range map[int]string{2: "it lost contact", 1: "rank 2 lost contact"} {
		err := pack(told, from, "x").unpack(0, from, "x")
		if e, ok := err.(*RemoteError); !ok || e.Rank != from ||
			!strings.HasPrefix(e.Message, want+" with this worker (rank 0)") {
			t.Error(err)
		}
	}
}
