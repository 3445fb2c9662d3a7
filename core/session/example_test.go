package session_test

import (
	"fmt"
	"log"
	"sync"

	"sar/core/internal/freeport"
	"sar/core/session"
)

// A ring of four nodes on two workers: each node gets the feature of the one
// before it. Workers are goroutines here; examples/go has processes.
func ExampleForward() {
	port := freeport.Find()
	sums := make([][]float32, 2)
	var workers sync.WaitGroup
	for rank := range 2 {
		workers.Go(func() {
			out, err := worker(rank, port)
			if err != nil {
				log.Printf("rank %d: %v", rank, err)
			}
			sums[rank] = out
		})
	}
	workers.Wait()
	fmt.Println(sums)
	// Output: [[4 1] [2 3]]
}

func worker(rank, port int) ([]float32, error) {
	s, err := session.Open(session.Config{
		Rank: rank, World: 2, MasterAddr: "127.0.0.1", MasterPort: port, JobToken: "the secret of this example",
	})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	// Worker 0 owns nodes 0 and 1, worker 1 nodes 2 and 3; each has the edges into its own.
	src, dst := []int64{3, 0}, []int64{0, 1}
	if rank == 1 {
		src, dst = []int64{1, 2}, []int64{2, 3}
	}
	g, err := s.GraphFromEdges([]int64{0, 2, 4}, src, dst)
	if err != nil {
		return nil, err
	}
	defer g.Free()
	x := session.Rows[float32]{Data: []float32{float32(2*rank + 1), float32(2*rank + 2)}, N: 2, Width: 1}
	out := session.Rows[float32]{Data: make([]float32, 2), N: 2, Width: 1}
	sum := session.Aggregation{Message: session.CopyU, Reduce: session.ReduceSum}
	if _, err := session.Forward(g, sum, x, nil, out); err != nil {
		return nil, err
	}
	return out.Data, s.Barrier(session.Reduce) // no worker leaves while another still reads from it
}
