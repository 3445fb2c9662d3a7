package partition_test

import (
	"fmt"

	"sar/core/partition"
)

// ring is the graph 0 → 1 → … → n-1 → 0.
type ring int64

func (n ring) NumNodes() int64 { return int64(n) }
func (n ring) NumEdges() int64 { return int64(n) }

func (n ring) Stream(yield func(src, dst []int64) error) error {
	for i := range int64(n) {
		if err := yield([]int64{i}, []int64{(i + 1) % int64(n)}); err != nil {
			return err
		}
	}
	return nil
}

// A ring of eight nodes is cut into two runs: two edges are between them.
func Example() {
	degrees, err := partition.InDegrees(ring(8))
	if err != nil {
		panic(err)
	}
	defer degrees.Free()
	assignment := make([]int32, 8)
	if err := partition.Contiguous(assignment, degrees.Data, 2); err != nil {
		panic(err)
	}
	report, err := partition.Quality(ring(8), assignment, 2)
	if err != nil {
		panic(err)
	}
	fmt.Println(assignment, report.EdgeCut)
	// Output: [0 0 0 0 1 1 1 1] 2
}
