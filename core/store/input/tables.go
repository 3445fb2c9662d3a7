package input

import (
	"sar/core/internal/argument"
	"sar/core/store/disk"
)

// Tables are the node types and the relations of a graph on disk.
type Tables struct {
	Name         string // of the file, for errors
	Nodes, Edges []Table
}

// Table is a node type or a relation. Runs and the ends are of relations.
type Table struct {
	Name     string
	Rows     int64
	Arrays   map[string]disk.Array
	Runs     EdgeReader
	Src, Dst int // node types
}

// EdgeReader gives the edges of one relation in runs, the same ones each time. Ends that
// are no nodes, of so many, are a *FormatError.
type EdgeReader interface {
	EdgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error
}

func typeRows(list []Table) []TypeRows {
	out := make([]TypeRows, len(list))
	for i, of := range list {
		out[i] = TypeRows{of.Name, of.Rows, disk.Infos(of.Arrays), of.Src, of.Dst}
	}
	return out
}

func total(list []Table) (n int64) {
	for _, of := range list {
		n += of.Rows
	}
	return n
}

func (g *Tables) NodeTypes() []TypeRows { return typeRows(g.Nodes) }
func (g *Tables) EdgeTypes() []TypeRows { return typeRows(g.Edges) }
func (g *Tables) NumNodes() int64       { return total(g.Nodes) }
func (g *Tables) NumEdges() int64       { return total(g.Edges) }

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

// ReadRows reads whole rows of a feature of one type.
func (g *Tables) ReadRows(edge bool, kind int, name string, first int64, dst []byte) error {
	list, what := g.Nodes, "node type"
	if edge {
		list, what = g.Edges, "relation"
	}
	if kind < 0 || kind >= len(list) {
		return argument.Errorf("%s has no %s %d", g.Name, what, kind)
	}
	a, ok := list[kind].Arrays[name]
	if !ok {
		return argument.Errorf("%s has no feature %q of %s %q", g.Name, name, what, list[kind].Name)
	}
	return a.ReadRows(first, dst)
}
