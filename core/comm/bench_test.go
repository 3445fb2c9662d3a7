package comm

import (
	"fmt"
	"testing"

	"sar/core/internal/dtypes"
)

// The time of one all-reduce among ranks of this process.
func BenchmarkAllReduce(b *testing.B) {
	for _, p := range []int{2, 4} {
		for _, n := range []int{8, 4 << 10, 32 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("P%d/%d", p, n), func(b *testing.B) {
				groups, err := Local(Config{World: p})
				if err != nil {
					b.Fatal(err)
				}
				errs := make(chan error, p)
				b.SetBytes(int64(n))
				for _, g := range groups {
					go func() {
						c, err := g.NewCommunicator("bench", 2<<20)
						buf := make([]byte, n)
						for i := 0; i < b.N && err == nil; i++ {
							err = c.AllReduce(buf, dtypes.Float32, Sum)
						}
						errs <- err
					}()
				}
				for range groups {
					if err := <-errs; err != nil {
						b.Fatal(err)
					}
				}
				for _, g := range groups {
					_ = g.Close()
				}
			})
		}
	}
}
