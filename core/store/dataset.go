package store

import (
	"fmt"
	"math"
	"strings"

	"sar/core/internal/argument"
)

// Dataset is a homogeneous graph in a .npz file, as users have it before they
// partition it:
//
//	edge_index   [2, E], integers: sources in row 0, destinations in row 1
//	x            [N, ...], becomes node feature "features"
//	y            [N, ...], becomes node feature "labels"
//	num_nodes    optional scalar
//
// Any other array of N rows is a node feature under its own name, and of E
// rows (E not N) an edge feature. N is the number of rows of x, y or an array
// whose name ends in "mask"; without those num_nodes; without that the largest
// id + 1. It may be used by several goroutines.
type Dataset struct {
	z            *npz
	edges        *array
	nodes, count int64 // nodes, edges
	node, edge   map[string]array
	ignored      []string
}

// origID is the feature that holds original ids beside DGL's.
const origID = "orig_id"

// OpenNPZ opens a graph. What is wrong with the file is a *FormatError.
func OpenNPZ(path string) (*Dataset, error) {
	f, err := openFile("the graph", path)
	if err != nil {
		return nil, err
	}
	d, err := newDataset(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

func newDataset(f *file) (*Dataset, error) {
	z, err := openNpz(f)
	if err != nil {
		return nil, err
	}
	d := &Dataset{z: z, node: map[string]array{}, edge: map[string]array{}}
	if err := d.findEdges(); err != nil {
		z.Close()
		return nil, err
	}
	if err := d.countNodes(); err != nil {
		z.Close()
		return nil, err
	}
	if err := d.sortArrays(); err != nil {
		z.Close()
		return nil, err
	}
	return d, nil
}

func (d *Dataset) findEdges() error {
	a := d.z.arrays["edge_index"]
	if a == nil {
		return d.z.f.bad(-1, `an array "edge_index" of shape [2, edges]`, "arrays %q", d.z.names)
	}
	if err := a.checkEdgeIndex(); err != nil {
		return err
	}
	d.edges, d.count = a, a.shape[1]
	return nil
}

func (a *array) checkEdgeIndex() error {
	if len(a.shape) != 2 || a.shape[0] != 2 {
		hint := ""
		if len(a.shape) == 2 && a.shape[1] == 2 {
			hint = ": save its transpose"
		}
		return a.f.bad(a.off, `"edge_index" of shape [2, edges]`, "shape %v%s", a.shape, hint)
	}
	if !a.dtype.IsInteger() {
		return a.f.bad(a.off, `"edge_index" of whole numbers`, "%s", a.dtype)
	}
	return nil
}

// countNodes finds N, from whatever says it first.
func (d *Dataset) countNodes() error {
	d.nodes = -1
	from := ""
	for _, name := range append([]string{"x", "y"}, d.z.names...) {
		a := d.z.arrays[name]
		if a == nil || (name != "x" && name != "y" && !strings.HasSuffix(name, "mask")) {
			continue
		}
		if len(a.shape) == 0 {
			return a.f.bad(a.off, fmt.Sprintf("%q with a row for each node", name), "a scalar")
		}
		if d.nodes < 0 {
			d.nodes, from = a.shape[0], name
		} else if a.shape[0] != d.nodes {
			return a.f.bad(a.off, fmt.Sprintf("%d rows of %q, as many as %q has", d.nodes, name, from), "%d", a.shape[0])
		}
	}
	if a := d.z.arrays["num_nodes"]; a != nil {
		var n [1]int64
		if a.n != 1 || !a.dtype.IsInteger() {
			return a.f.bad(a.off, `"num_nodes", one whole number`, "%s of shape %v", a.dtype, a.shape)
		}
		if err := a.ints(0, n[:]); err != nil {
			return err
		}
		if n[0] < 0 || (d.nodes >= 0 && n[0] != d.nodes) {
			return a.f.bad(a.off, fmt.Sprintf(`"num_nodes" equal to the %d rows of %q`, d.nodes, from), "%d", n[0])
		}
		d.nodes = n[0]
	}
	if d.nodes >= 0 {
		return d.plausible()
	}
	largest := int64(-1)
	d.nodes = math.MaxInt64
	err := d.EdgesBatch(func(_ int64, src, dst []int64) error {
		for i := range src {
			largest = max(largest, src[i], dst[i])
		}
		return nil
	})
	d.nodes = largest + 1
	if err != nil {
		return err
	}
	return d.plausible()
}

// plausible refuses a number of nodes that no data of the file stands behind:
// what works on the graph takes memory for every node.
func (d *Dataset) plausible() error {
	for _, a := range d.z.arrays {
		if len(a.shape) > 0 && a.shape[0] == d.nodes && a.n >= d.nodes {
			return nil
		}
	}
	if limit := 16*d.z.f.size + 2*d.count; d.nodes > limit {
		return d.edges.f.bad(-1, fmt.Sprintf("at most %d nodes in a file of %d bytes without a row for each", limit, d.z.f.size), "%d", d.nodes)
	}
	return nil
}

func (d *Dataset) sortArrays() error {
	for _, name := range d.z.names {
		a := d.z.arrays[name]
		if name == "edge_index" || name == "num_nodes" {
			continue
		}
		if strings.ContainsAny(name, "/\\") {
			return a.f.bad(-1, "a name without slashes, which become part of a feature's name", "%q: rename it", name)
		}
		to := name
		switch name {
		case "x":
			to = "features"
		case "y":
			to = "labels"
		case origID:
			return a.f.bad(-1, fmt.Sprintf("no array named %q: partitions keep the original ids under that name", origID), "one: rename it")
		}
		var into map[string]array
		switch {
		case len(a.shape) > 0 && a.shape[0] == d.nodes:
			into = d.node
		case len(a.shape) > 0 && a.shape[0] == d.count:
			into = d.edge
		default:
			d.ignored = append(d.ignored, name)
			continue
		}
		if _, twice := into[to]; twice {
			return a.f.bad(-1, fmt.Sprintf("one array for feature %q", to), "two: x stands for features and y for labels")
		}
		into[to] = *a
	}
	return nil
}

// Close closes the file.
func (d *Dataset) Close() error { return d.z.Close() }

// NumNodes is the number of nodes.
func (d *Dataset) NumNodes() int64 { return d.nodes }

// NumEdges is the number of edges.
func (d *Dataset) NumEdges() int64 { return d.count }

// NodeArrays lists the node features, by name.
func (d *Dataset) NodeArrays() []TensorInfo { return infos(d.node) }

// EdgeArrays lists the edge features, by name.
func (d *Dataset) EdgeArrays() []TensorInfo { return infos(d.edge) }

// IDs implements WholeGraph: an .npz file has numbers alone.
func (d *Dataset) IDs() map[string]string { return nil }

// Ignored names arrays that have neither a row for each node nor one for each edge.
func (d *Dataset) Ignored() []string { return d.ignored }

// ReadRows reads whole rows of a feature, from row first on, into dst.
func (d *Dataset) ReadRows(edge bool, name string, first int64, dst []byte) error {
	m, kind := d.node, "node"
	if edge {
		m, kind = d.edge, "edge"
	}
	a, ok := m[name]
	if !ok {
		return argument.Errorf("%s has no %s feature %q", d.z.f.name, kind, name)
	}
	return a.rows(first, dst)
}

// rows reads whole rows, from row first on, into dst.
func (a *array) rows(first int64, dst []byte) error {
	row := TensorInfo{DType: a.dtype, Shape: a.shape}.RowBytes()
	if first < 0 || (row > 0 && (int64(len(dst))%row != 0 || first > a.shape[0]-int64(len(dst))/row)) || (row == 0 && len(dst) > 0) {
		return argument.Errorf("%s has rows of %d bytes, %d of them: %d bytes from row %d on do not fit", a.what, row, a.shape[0], len(dst), first)
	}
	if a.fortran {
		return a.fortranRows(first, dst)
	}
	if a.derive != nil {
		all := make([]byte, a.bytes())
		if err := a.derive(all); err != nil {
			return err
		}
		copy(dst, all[first*row:])
		return nil
	}
	return a.f.readLarge(dst, a.off+first*row, a.what)
}

// EdgesBatch calls yield with one run of edges after another: edges first,
// first+1, … of the file. The slices are valid during the call. Ids that are
// no nodes are a *FormatError.
func (d *Dataset) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	return d.edges.edgeRuns(d.nodes, d.nodes, yield)
}

// edgeRuns reads an array [2, edges] whose ends are below numSrc and numDst.
func (a *array) edgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error {
	count := a.shape[1]
	size := int64(a.dtype.Size())
	room := min(batch, count)
	src, dst := make([]int64, room), make([]int64, room)
	var pairs []int64
	if a.fortran {
		pairs = make([]int64, 2*room)
	}
	for at := int64(0); at < count; at += batch {
		n := int(min(batch, count-at))
		s, t := src[:n], dst[:n]
		if a.fortran {
			if err := a.ints(2*at, pairs[:2*n]); err != nil {
				return err
			}
			for i := range s {
				s[i], t[i] = pairs[2*i], pairs[2*i+1]
			}
		} else if err := a.ints(at, s); err != nil {
			return err
		} else if err := a.ints(count+at, t); err != nil {
			return err
		}
		for i := range s {
			if uint64(s[i]) >= uint64(numSrc) || uint64(t[i]) >= uint64(numDst) {
				between := fmt.Sprintf("two of the %d nodes", numSrc)
				if numSrc != numDst {
					between = fmt.Sprintf("one of %d nodes and one of %d", numSrc, numDst)
				}
				return a.f.bad(a.off+(at+int64(i))*size, fmt.Sprintf("edge %d between %s", at+int64(i), between), "%d -> %d", s[i], t[i])
			}
		}
		if err := yield(at, s, t); err != nil {
			return err
		}
	}
	return nil
}
