package export

import "testing"

// BenchmarkGuard is what an export costs beside its work: a handle looked up, and a result handed back.
func BenchmarkGuard(b *testing.B) {
	h := register(kindOf[string](graphs), "graph", nil)
	var n int
	for b.Loop() {
		guard("bench", func(c *call) {
			give("n", &n, len(use(c, h, kindOf[string](graphs))))
		})
	}
}
