package comm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A rank whose buffer is on the other side of flatBytes than the root's looks for
// its bytes on another way than they take. It hears of that at once, and not when
// the root begins something else, which no rank does here.
func TestBroadcastSizesAcrossTheThreshold(t *testing.T) {
	const small, large = flatBytes, flatBytes + 1
	for _, root := range []int{0, 2} {
		for place := 1; place < 4; place++ {
			for _, sizes := range [][2]int{{small, large}, {large, small}} {
				odd := (root + place) % 4
				t.Run(fmt.Sprintf("root %d, %d bytes, rank %d %d", root, sizes[0], odd, sizes[1]), func(t *testing.T) {
					begin := time.Now()
					for r, err := range onRanks(t, Config{World: 4, Operation: 20 * time.Second}, 1<<20, func(c *Communicator) error {
						n := sizes[0]
						if c.Rank() == odd {
							n = sizes[1]
						}
						if err := c.Broadcast(make([]byte, n), root); err != nil {
							return err
						}
						<-c.Group().Failed()
						return c.Group().Failure()
					}) {
						var size *SizeError
						if !errors.As(err, &size) {
							t.Errorf("rank %d: %v", r, err)
						} else if size.Rank != odd && size.Peer != odd ||
							!strings.Contains(err.Error(), fmt.Sprintf("rank %d sends %d bytes to rank %d, which expects %d", root, sizes[0],
								odd, sizes[1])) {
							t.Errorf("rank %d: %v", r, err)
						}
					}
					if took := time.Since(begin); took > 10*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			}
		}
	}
}
