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
	parts      []*Partition
	node, edge []input.TypeRows
	first      []int64   // [node type] first node of the type
	base       [][]int64 // [node type][part] first node of the part among those of the type
	room       int64     // edges that are held at a time
}

// LimitMemory sets how much EdgesBatch may take beside the nodes of a part.
func (g *allParts) LimitMemory(bytes int64) { g.room = max(1, bytes/edgeRoom) }

// edgeRoom are the bytes of two ends of an edge, rounded up for a mark.
const edgeRoom = 17

// OpenParts opens all parts of a partitioned graph as one graph, to be written in another
// format or partitioned anew. It opens the files of all parts.
func OpenParts(jsonPath string, flags Flags) (input.Graph, error) {
	parts, err := openParts(jsonPath, flags)
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

func openParts(jsonPath string, flags Flags) (parts []*Partition, err error) {
	for p := 0; p == 0 || p < parts[0].book.Parts; p++ {
		part, err := OpenPartition(jsonPath, p, flags)
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
	var at int64
	for t, name := range book.NodeTypes {
		g.first = append(g.first, at)
		base, rows := []int64{}, int64(0)
		for p := range g.parts {
			base = append(base, rows)
			rows += book.NumNodes(t, p)
		}
		g.base = append(g.base, base)
		at += rows
		g.node = append(g.node, input.TypeRows{Name: name, Rows: rows})
	}
	for r, et := range book.EdgeTypes {
		var rows int64
		for p := range g.parts {
			rows += book.NumEdges(r, p)
		}
		g.edge = append(g.edge, input.TypeRows{Name: et.String(), Rows: rows})
	}
	for edge, list := range map[bool][]input.TypeRows{false: g.node, true: g.edge} {
		for i := range list {
			if err := g.features(edge, &list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// features finds the features of a type, which all parts have to have alike.
func (g *allParts) features(edge bool, of *input.TypeRows) error {
	for p, part := range g.parts {
		var arrays []disk.TensorInfo
		for _, f := range part.Features(edge) {
			if name, is := strings.CutPrefix(f.Name, of.Name+"/"); is {
				arrays = append(arrays, disk.TensorInfo{Name: name, DType: f.DType,
					Shape: append([]int64{of.Rows}, f.Shape[1:]...)})
			}
		}
		if p == 0 {
			of.Arrays = arrays
		} else if fmt.Sprint(arrays) != fmt.Sprint(of.Arrays) {
			return disk.Bad(part.path, -1, fmt.Sprintf("parts with the same features of %s", of.Name),
				"%v and, in part %d, %v", of.Arrays, p, arrays)
		}
	}
	return nil
}

func (g *allParts) NodeTypes() []input.TypeRows { return g.node }
func (g *allParts) EdgeTypes() []input.TypeRows { return g.edge }
func (g *allParts) NumNodes() int64             { return rowsOf(g.node) }
func (g *allParts) NumEdges() int64             { return rowsOf(g.edge) }
func (g *allParts) Ignored() []string           { return nil }
func (g *allParts) IDs() map[string]string      { return nil } // each part has its own (Partition.IDs)
func (g *allParts) Close() error                { return closeParts(g.parts) }

func rowsOf(list []input.TypeRows) (n int64) {
	for _, of := range list {
		n += of.Rows
	}
	return n
}

// Assignment fills to with the part of every node.
func (g *allParts) Assignment(to []int32) error {
	if int64(len(to)) != g.NumNodes() {
		return argument.Errorf("an assignment of %d nodes for a graph of %d", len(to), g.NumNodes())
	}
	at := 0
	for t := range g.node {
		for p := range g.parts {
			for range g.parts[0].Book().NumNodes(t, p) {
				to[at] = int32(p)
				at++
			}
		}
	}
	return nil
}

// EdgesBatch implements Source.
func (g *allParts) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	book := g.parts[0].Book()
	var before int64
	for r := range g.edge {
		for p, part := range g.parts {
			shift := before - book.EdgeStart[r][p]
			err := part.EachEdge(r, g.room, func(first int64, src, dst []int64) error {
				for _, list := range [][]int64{src, dst} {
					for i, id := range list {
						t, p, _ := book.Owner(id)
						list[i] = g.first[t] + g.base[t][p] + id - book.NodeStart[t][p]
					}
				}
				return yield(first+shift, src, dst)
			})
			part.forgetHalo()
			if err != nil {
				return err
			}
			before += book.NumEdges(r, p)
		}
	}
	return nil
}

// ReadRows implements Source.
func (g *allParts) ReadRows(edge bool, kind int, name string, first int64, dst []byte) error {
	list, book := g.node, g.parts[0].Book()
	if edge {
		list = g.edge
	}
	if kind < 0 || kind >= len(list) {
		return argument.Errorf("there is no type %d", kind)
	}
	i := slices.IndexFunc(list[kind].Arrays, func(a disk.TensorInfo) bool { return a.Name == name })
	if i < 0 {
		return argument.Errorf("there is no feature %q of %s", name, list[kind].Name)
	}
	row := list[kind].Arrays[i].RowBytes()
	var at int64
	for p, part := range g.parts {
		rows := int64(0)
		if edge {
			rows = book.NumEdges(kind, p)
		} else {
			rows = book.NumNodes(kind, p)
		}
		if len(dst) > 0 && first < at+rows {
			n := min(int64(len(dst)), (at+rows-first)*row)
			a := part.files.Features(edge)[list[kind].Name+"/"+name]
			if err := a.ReadRows(first-at, dst[:n]); err != nil {
				return err
			}
			dst = dst[n:]
			first += n / max(1, row)
		}
		at += rows
	}
	return nil
}
