package input

// Tables are the node types and the relations of a graph on disk.
type Tables struct{ Nodes, Edges []Table }

func total(list []Table) (n int64) {
	for _, of := range list {
		n += of.Rows
	}
	return n
}

func (g *Tables) NodeTypes() []Table { return g.Nodes }
func (g *Tables) EdgeTypes() []Table { return g.Edges }
func (g *Tables) NumNodes() int64    { return total(g.Nodes) }
func (g *Tables) NumEdges() int64    { return total(g.Edges) }

// EdgesBatch numbers nodes and edges over all types.
func (g *Tables) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	start := func(kind int) int64 { return total(g.Nodes[:kind]) }
	var before int64
	for _, r := range g.Edges {
		from, to := start(r.Src), start(r.Dst)
		err := r.Runs.EdgeRuns(g.Nodes[r.Src].Rows, g.Nodes[r.Dst].Rows, func(first int64, src, dst []int64) error {
			for i := range src {
				src[i] += from
				dst[i] += to
			}
			return yield(before+first, src, dst)
		})
		if err != nil {
			return err
		}
		before += r.Rows
	}
	return nil
}
