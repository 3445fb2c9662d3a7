package dgl

import (
	"errors"
	"fmt"
	"strings"

	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/store/disk"
)

// Files are the files of a partition: the key of their path in the description, their name, and
// where their arrays lie.
var Files = [3]struct {
	Key, Name, What string
	Arrays          func(f *disk.File) ([]disk.Array, error)
}{
	{GraphKey, "graph.dgl", "the graph of the partition", graphArrays},
	{NodeKey, "node_feat.dgl", "the node features of the partition", tensorArrays},
	{EdgeKey, "edge_feat.dgl", "the edge features of the partition", tensorArrays},
}

// The keys of the paths of DGL's files.
const (
	GraphKey = "part_graph"
	NodeKey  = "node_feats"
	EdgeKey  = "edge_feats"
)

// Open opens the files of a part, whose paths a description names, and reads their headers.
// sums are nil where there are no checksums.
func Open(description string, paths map[string]string, sums map[string]disk.Checksums, book *graph.Book,
	part int) (p *Part, err error) {
	p = &Part{book: book, part: part}
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	defer must.Return(&err)
	for i, of := range Files {
		if p.files[i], err = disk.OpenFile(of.What, paths[of.Key]); err != nil {
			return p, fmt.Errorf("%w (named by %s)", err, description)
		}
		if sums != nil {
			must.Do(p.files[i].Attach(must.Get(disk.SumsIn(sums, paths[disk.SumsKey], of.Key))))
		}
	}
	p.openGraph(p.files[0])
	nodes, edges := map[string]int64{}, map[string]int64{}
	for t, name := range book.NodeTypes {
		nodes[name] = book.NumNodes(t, part)
	}
	for t, et := range book.EdgeTypes {
		edges[et.String()] = book.NumEdges(t, part)
	}
	p.nodeFeats = features(p.files[1], nodes, graph.OnlyNodeType)
	p.edgeFeats = features(p.files[2], edges, graph.OnlyEdgeType.String())
	return p, nil
}

// Features are those of edges or of nodes, by name.
func (p *Part) Features(edge bool) map[string]disk.Array {
	if edge {
		return p.edgeFeats
	}
	return p.nodeFeats
}

// Bad is the error of what is wrong with the graph as a whole.
func (p *Part) Bad(want, got string, args ...any) error { return p.f.Bad(-1, want, got, args...) }

// Size is the size of the files.
func (p *Part) Size() (n int64) {
	for _, f := range p.files {
		n += f.Size
	}
	return n
}

// Close closes the files.
func (p *Part) Close() error {
	return errors.Join(p.files[0].Close(), p.files[1].Close(), p.files[2].Close())
}

// features reads the headers of a feature file and holds the number of rows
// of each against the type it belongs to. Names without a type are those of
// older versions of DGL, which had one.
func features(f *disk.File, rows map[string]int64, only string) map[string]disk.Array {
	out := map[string]disk.Array{}
	for _, a := range must.Get(parseTensors(f)) {
		name := a.name
		if !strings.Contains(name, "/") {
			name = only + "/" + name
		}
		typ, _, _ := strings.Cut(name, "/")
		n, ok := rows[typ]
		f.Want(ok, a.Offset, "features of a type of this graph", "%q", name)
		f.Want(len(a.Shape) > 0 && a.Shape[0] == n, a.Offset,
			fmt.Sprintf("%d rows of feature %q, as many as the partition has", n, name), "shape %v", a.Shape)
		_, twice := out[name]
		f.Want(!twice, a.Offset, "each feature once", "%q again", name)
		a.Name = fmt.Sprintf("feature %q", name)
		out[name] = a.Array
	}
	return out
}
