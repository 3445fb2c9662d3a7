// Package partition assigns nodes to workers and says how good an assignment
// is. It sees a graph as a stream of edges that can be read several times.
package partition

import (
	"fmt"
	"math/rand/v2"

	"sar/core/internal/argument"
	"sar/core/mem"
)

// Edges is a whole graph: nodes 0..NumNodes()-1 and directed edges.
type Edges interface {
	NumNodes() int64
	NumEdges() int64
	// Stream calls yield with one run of edges after another, the same ones
	// each time; the slices are valid during the call. It stops at an error.
	Stream(yield func(src, dst []int64) error) error
}

// each streams the edges after checking them: no run is ragged, and no id
// outside the graph reaches visit.
func each(edges Edges, visit func(src, dst []int64) error) error {
	n, want, seen := uint64(edges.NumNodes()), edges.NumEdges(), int64(0)
	err := edges.Stream(func(src, dst []int64) error {
		if len(src) != len(dst) {
			return fmt.Errorf("edges after the first %d: %d sources, %d destinations", seen, len(src), len(dst))
		}
		for i, u := range src {
			if v := dst[i]; uint64(u) >= n || uint64(v) >= n {
				return fmt.Errorf("edge %d goes from node %d to node %d; expected ids in [0, %d)", seen+int64(i), u, v, n)
			}
		}
		seen += int64(len(src))
		return visit(src, dst)
	})
	if err == nil && seen != want {
		err = fmt.Errorf("the graph gave %d edges of the %d it announced", seen, want)
	}
	return err
}

func checkParts(parts int) error {
	if parts < 1 {
		return argument.Errorf("%d parts: expected at least 1", parts)
	}
	return nil
}

// Random fills assignment, one entry a node, with parts of equal sizes (they
// differ by one at most), drawn by seed alone.
func Random(assignment []int32, parts int, seed uint64) error {
	if err := checkParts(parts); err != nil {
		return err
	}
	for i := range assignment {
		assignment[i] = int32(i % parts)
	}
	rng := rand.New(rand.NewPCG(seed, 0x5a12))
	rng.Shuffle(len(assignment), func(i, j int) { assignment[i], assignment[j] = assignment[j], assignment[i] })
	return nil
}

// Contiguous fills assignment, one entry a node, with parts that are runs of
// ids, of about equal in-edges plus nodes, which is what a worker's time and
// structure grow with. A part ends where the next node would take it further
// past its share of what is left than leaving it out falls short, so a hub
// makes the parts behind it smaller and none of them empty (given a node each).
func Contiguous(assignment []int32, inDegree []int64, parts int) error {
	if err := checkParts(parts); err != nil {
		return err
	}
	if len(assignment) != len(inDegree) {
		return fmt.Errorf("an assignment of %d nodes, in-degrees of %d", len(assignment), len(inDegree))
	}
	left := int64(len(inDegree)) // weight of the current part and those behind it
	for _, d := range inDegree {
		left += d
	}
	part, load := 0, int64(0)
	for i, d := range inDegree {
		w := d + 1
		behind := parts - 1 - part // parts behind the current one
		over := 2*load+w > 2*left/int64(behind+1)
		if load > 0 && behind > 0 && (over || len(inDegree)-i <= behind) {
			left -= load
			load = 0
			part++
		}
		load += w
		assignment[i] = int32(part)
	}
	return nil
}

// InDegrees counts the in-edges of every node. The caller frees the array.
func InDegrees(edges Edges) (mem.Array[int64], error) {
	deg, err := mem.Make[int64](mem.Scratch, int(edges.NumNodes()))
	if err != nil {
		return deg, err
	}
	err = each(edges, func(_, dst []int64) error {
		for _, v := range dst {
			deg.Data[v]++
		}
		return nil
	})
	if err != nil {
		deg.Free()
	}
	return deg, err
}
