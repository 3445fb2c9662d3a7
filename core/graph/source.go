package graph

// EdgeBatch is a run of edges as a file holds them. Src and Dst number the
// nodes of EdgeSource.Nodes. ID is the homogenized edge id. Type is nil where
// there is one edge type. Inner is nil where every edge is an in-edge of an
// own node; else edges with 0 are skipped. Slices are valid during the call.
type EdgeBatch struct {
	Src, Dst []int64
	ID       []int64
	Type     []int32
	Inner    []uint8
}

// EdgeSource gives the edges of one worker, in batches, as often as asked and
// in the same order each time. Both partition files and edges in memory are
// sources; none of them ever holds all edges as int64 at once.
type EdgeSource interface {
	// Nodes returns the homogenized id of every local node, and how many of
	// them, the first ones, the worker owns.
	Nodes() (ids []int64, inner int, err error)
	// NumEdges is the number of edges that Edges yields in all.
	NumEdges() int64
	// Edges calls yield for one batch after another until it returns an error.
	Edges(yield func(EdgeBatch) error) error
}
