package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sar/core/internal/argument"
	"sar/core/store/disk"
	"sar/core/store/input"
)

// allParts are all parts of a partitioned graph as one graph. Nodes of a type, and edges of a
// relation, are those of part 0, then those of part 1, and so on; features "orig_id" keep
// what they say.
type allParts struct {
	input.Tables
	parts []*Partition
	base  [][]int64 // [node type][part] first node of the part among those of the type
	room  int64     // edges that are held at a time
}

// LimitMemory sets how much EdgesBatch may take beside the nodes of a part.
func (g *allParts) LimitMemory(bytes int64) { g.room = max(1, bytes/edgeRoom) }

// edgeRoom are the bytes of two ends of an edge, rounded up for a mark.
const edgeRoom = 17

// OpenParts opens all parts of a partitioned graph as one graph, to be written in another
// format or partitioned anew. It opens the files of all parts.
func OpenParts(jsonPath string) (input.Graph, error) {
	parts, err := openParts(jsonPath)
	if err != nil {
		return nil, err
	}
	g := &allParts{parts: parts}
	g.LimitMemory(DefaultMemory / edgeShare)
	if err := g.describe(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func openParts(jsonPath string) (parts []*Partition, err error) {
	for p := 0; p == 0 || p < parts[0].book.Parts; p++ {
		part, err := OpenPartition(jsonPath, p, 0)
		if err != nil {
			return nil, errors.Join(err, closeParts(parts))
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func closeParts(parts []*Partition) (err error) {
	for _, p := range parts {
		err = errors.Join(err, p.Close())
	}
	return err
}

func (g *allParts) describe() error {
	book := g.parts[0].Book()
	for t, name := range book.NodeTypes {
		of, base := input.Table{Name: name}, []int64{}
		for p := range g.parts {
			base = append(base, of.Rows)
			of.Rows += book.NumNodes(t, p)
		}
		if err := g.features(false, &of); err != nil {
			return err
		}
		g.Nodes, g.base = append(g.Nodes, of), append(g.base, base)
	}
	for r, et := range book.EdgeTypes {
		of := input.Table{Name: et.String(), Runs: partsRelation{g, r},
			Src: slices.Index(book.NodeTypes, et.Src), Dst: slices.Index(book.NodeTypes, et.Dst)}
		for p := range g.parts {
			of.Rows += book.NumEdges(r, p)
		}
		if err := g.features(true, &of); err != nil {
			return err
		}
		g.Edges = append(g.Edges, of)
	}
	return nil
}

// features finds the features of a type, which all parts have to have alike.
func (g *allParts) features(edge bool, of *input.Table) error {
	var all []disk.TensorInfo
	for p, part := range g.parts {
		var here []disk.TensorInfo
		for _, f := range part.Features(edge) {
			if strings.HasPrefix(f.Name, of.Name+"/") {
				f.Shape[0] = of.Rows
				here = append(here, f)
			}
		}
		if p == 0 {
			all = here
		} else if fmt.Sprint(here) != fmt.Sprint(all) {
			return disk.Bad(part.path, -1, fmt.Sprintf("parts with the same features of %s", of.Name),
				"%v and, in part %d, %v", all, p, here)
		}
	}
	of.Arrays = map[string]disk.Array{}
	for _, f := range all {
		of.Arrays[f.Name[len(of.Name)+1:]] = disk.Array{Name: "feature " + f.Name, DType: f.DType, Shape: f.Shape,
			Len:    f.Bytes() / int64(f.DType.Size()),
			Derive: func(first int64, dst []byte) error { return g.rows(edge, f.Name, first, dst) }}
	}
	return nil
}

// rows reads rows of a feature from the parts that have them.
func (g *allParts) rows(edge bool, name string, first int64, dst []byte) error {
	for _, part := range g.parts {
		a := part.files.Features(edge)[name]
		rows := a.Shape[0]
		if len(dst) > 0 && first < rows {
			row := a.RowBytes()
			n := min(int64(len(dst)), (rows-first)*row)
			if err := a.ReadRows(first, dst[:n]); err != nil {
				return err
			}
			dst = dst[n:]
			first += n / row
		}
		first -= rows // counted from the next part on
	}
	return nil
}

func (g *allParts) Ignored() []string      { return nil }
func (g *allParts) IDs() map[string]string { return nil } // each part has its own (Partition.IDs)
func (g *allParts) Close() error           { return closeParts(g.parts) }

// Assignment fills to with the part of every node.
func (g *allParts) Assignment(to []int32) error {
	if int64(len(to)) != g.NumNodes() {
		return argument.Errorf("an assignment of %d nodes for a graph of %d", len(to), g.NumNodes())
	}
	at := 0
	for t := range g.Nodes {
		for p := range g.parts {
			for range g.parts[0].Book().NumNodes(t, p) {
				to[at] = int32(p)
				at++
			}
		}
	}
	return nil
}

// partsRelation is the edges of a relation, part by part.
type partsRelation struct {
	*allParts
	relation int
}

// EdgeRuns implements input.EdgeReader.
func (r partsRelation) EdgeRuns(_, _ int64, yield func(first int64, src, dst []int64) error) error {
	book, of := r.parts[0].Book(), r.Edges[r.relation]
	var before int64
	for p, part := range r.parts {
		shift := before - book.EdgeStart[r.relation][p]
		err := part.EachEdge(r.relation, r.room, func(first int64, src, dst []int64) error {
			for k, list := range [][]int64{src, dst} {
				for i, id := range list {
					t, owner, _ := book.Owner(id)
					if want := [2]int{of.Src, of.Dst}[k]; t != want {
						return part.files.Bad(fmt.Sprintf("edges of %s to join nodes of its types", of.Name), "node %d of type %q", id,
							book.NodeTypes[t])
					}
					list[i] = r.base[t][owner] + id - book.NodeStart[t][owner]
				}
			}
			return yield(first+shift, src, dst)
		})
		part.forgetHalo()
		if err != nil {
			return err
		}
		before += book.NumEdges(r.relation, p)
	}
	return nil
}
