package comm

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Nobody leaves a barrier before everyone has come, whoever comes last.
func TestBarrierWaitsForAll(t *testing.T) {
	for _, world := range []int{2, 5, barrierFan, barrierFan + 1, barrierFan*2 + 3} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			var came atomic.Int64
			noErrors(t, onRanks(t, Config{World: world}, 1<<20, func(c *Communicator) error {
				for k := range 2 * world {
					if k%world == c.Rank() {
						time.Sleep(time.Millisecond)
					}
					came.Add(1)
					if err := c.Barrier(); err != nil {
						return err
					}
					if n := came.Load(); n < int64((k+1)*world) {
						return fmt.Errorf("rank %d left barrier %d when %d had come", c.Rank(), k, n)
					}
				}
				return nil
			}))
		})
	}
}
