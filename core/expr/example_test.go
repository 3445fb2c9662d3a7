package expr_test

import (
	"fmt"
	"log"

	"sar/core/expr"
	"sar/core/graph"
	"sar/core/kernel"
)

// Messages are rows of sources times weights of edges, and destinations sum them up.
func Example() {
	starts := []int64{0, 3} // one worker, nodes 0 to 2
	book, err := graph.HomogeneousBook(starts)
	if err != nil {
		log.Fatal(err)
	}
	// 0 → 2, 1 → 2, 2 → 1
	edges, err := graph.FromEdges(starts, 0, graph.Ends{Src: []int64{0, 1, 2}, Dst: []int64{2, 2, 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer edges.Free()
	relations, err := graph.Build(book, 0, edges, graph.BuildOptions{EdgeOrder: true, Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	rel := relations[0]
	defer rel.Free()

	program, err := expr.Parse(`{
		"operands": [{"side": "u", "shape": [2]}, {"side": "e", "shape": [1]}],
		"code": [{"op": "mul", "a": 0, "b": 1}],
		"result": 2, "reduce": "sum"}`)
	if err != nil {
		log.Fatal(err)
	}
	run := &expr.Run[float64]{
		Program: program, Rel: &graph.Relation{Structure: rel}, Pool: kernel.NewPool(1),
		Operands: [][]float64{{1, 2, 3, 4, 5, 6}, {10, 100, 1000}},
		Out:      make([]float64, 3*2),
	}
	defer run.Close()
	for _, phase := range run.Forward() {
		phase.Sweep.Rows(nil, 0, int32(rel.NumCols()))
		phase.Finish()
	}
	fmt.Println("out", run.Out)

	// The gradients of both operands, where that of the result is 1 everywhere.
	run.Grad = []float64{1, 1, 1, 1, 1, 1}
	run.Grads = [][]float64{make([]float64, 6), make([]float64, 3)}
	plan := run.Differentiate(0b11)
	fmt.Printf("saves operands %b, fetches %b, returns %b\n", plan.Saves, plan.Fetch, plan.Return)
	backward, err := run.Backward(plan)
	if err != nil {
		log.Fatal(err)
	}
	backward.Own.Columns(0, rel.NumSrc)
	backward.Finish()
	fmt.Println("gradients", run.Grads)
	// Output:
	// out [0 0 5000 6000 310 420]
	// saves operands 11, fetches 1, returns 1
	// gradients [[10 10 100 100 1000 1000] [3 7 11]]
}
