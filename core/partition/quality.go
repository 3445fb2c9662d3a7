package partition

import (
	"sar/core/internal/argument"
	"sar/core/mem"
)

// Report says what an assignment costs. Edges are directed, as the graph gives
// them; an edge belongs to the part of its destination.
type Report struct {
	Parts           int     `json:"parts"`
	EdgeCut         int64   `json:"edge_cut"`          // edges between different parts
	EdgeCutFraction float64 `json:"edge_cut_fraction"` // of all edges; 0 where there are none
	Nodes           []int64 `json:"nodes"`             // [parts]
	Edges           []int64 `json:"edges"`             // [parts] in-edges
	// Largest part over the mean, 1 where there is nothing to divide.
	NodeBalance float64 `json:"node_balance"`
	EdgeBalance float64 `json:"edge_balance"`
	// Boundary[p][q] is the number of distinct nodes of q that p reads: the rows
	// that travel from q to p whenever p aggregates. Boundary[p][p] is 0.
	Boundary [][]int64 `json:"boundary"`
	// Between[p][q] is the number of edges from nodes of q to nodes of p.
	Between [][]int64 `json:"between"`
}

// Quality measures an assignment, one part of 0..parts-1 for each node. It
// takes 8 bytes a node and reads the edges once per 64 parts.
func Quality(edges Edges, assignment []int32, parts int) (Report, error) {
	r := Report{Parts: parts}
	if err := checkParts(parts); err != nil {
		return r, err
	}
	n := edges.NumNodes()
	if int64(len(assignment)) != n {
		return r, argument.Errorf("an assignment of %d nodes for a graph of %d", len(assignment), n)
	}
	r.Nodes, r.Edges = make([]int64, parts), make([]int64, parts)
	r.Boundary, r.Between = make([][]int64, parts), make([][]int64, parts)
	for p := range parts {
		r.Boundary[p], r.Between[p] = make([]int64, parts), make([]int64, parts)
	}
	for i, p := range assignment {
		if p < 0 || int(p) >= parts {
			return r, argument.Errorf("node %d is assigned to part %d; expected one in [0, %d)", i, p, parts)
		}
		r.Nodes[p]++
	}
	// bit p of readers[u]: part first+p reads u
	readers, err := mem.Make[uint64](mem.Scratch, int(n))
	if err != nil {
		return r, err
	}
	defer readers.Free()
	for first := 0; first < parts; first += 64 {
		if first > 0 {
			clear(readers.Data)
		}
		err := each(edges, func(src, dst []int64) error {
			for i, u := range src {
				q, p := assignment[u], assignment[dst[i]]
				if first == 0 {
					r.Between[p][q]++
				}
				// a part below first wraps around to a large number
				if bit := uint(int(p) - first); p != q && bit < 64 && readers.Data[u]>>bit&1 == 0 {
					readers.Data[u] |= 1 << bit
					r.Boundary[p][q]++
				}
			}
			return nil
		})
		if err != nil {
			return r, err
		}
	}
	for p, row := range r.Between {
		for q, n := range row {
			r.Edges[p] += n
			if p != q {
				r.EdgeCut += n
			}
		}
	}
	if m := edges.NumEdges(); m > 0 {
		r.EdgeCutFraction = float64(r.EdgeCut) / float64(m)
	}
	r.NodeBalance, r.EdgeBalance = balance(r.Nodes), balance(r.Edges)
	return r, nil
}

func balance(sizes []int64) float64 {
	var sum, most int64
	for _, s := range sizes {
		sum += s
		most = max(most, s)
	}
	if sum == 0 {
		return 1
	}
	return float64(most) * float64(len(sizes)) / float64(sum)
}
