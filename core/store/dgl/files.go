package dgl

import (
	"fmt"
	"strings"

	"sar/core/store/disk"
)

// Files are the files of a partition: the key of their path in the
// description, the name that WritePartitions gives them, and where their arrays lie.
var Files = [3]struct {
	Key, name, What string
	Arrays          func(f *disk.File) ([]disk.Array, error)
}{
	{GraphKey, PartGraphFile, "the graph of the partition", graphArrays},
	{NodeKey, NodeFile, "the node features of the partition", tensorArrays},
	{EdgeKey, EdgeFile, "the edge features of the partition", tensorArrays},
}

// Features reads the headers of a feature file and holds the number of rows
// of each against the type it belongs to. Names without a type are those of
// older versions of DGL, which had one.
func Features(f *disk.File, rows map[string]int64, only string) (map[string]disk.Array, error) {
	list, err := parseTensors(f)
	if err != nil {
		return nil, err
	}
	out := map[string]disk.Array{}
	for _, a := range list {
		name := a.name
		if !strings.Contains(name, "/") {
			name = only + "/" + name
		}
		typ, _, _ := strings.Cut(name, "/")
		n, ok := rows[typ]
		if !ok {
			return nil, f.Bad(a.Offset, "features of a type of this graph", "%q", name)
		}
		if len(a.Shape) == 0 || a.Shape[0] != n {
			return nil, f.Bad(a.Offset, fmt.Sprintf("%d rows of feature %q, as many as the partition has", n, name), "shape %v", a.Shape)
		}
		if _, twice := out[name]; twice {
			return nil, f.Bad(a.Offset, "each feature once", "%q again", name)
		}
		a.Name = fmt.Sprintf("feature %q", name)
		out[name] = a.Array
	}
	return out, nil
}

// The keys of the paths of DGL's files.
const (
	GraphKey = "part_graph"
	NodeKey  = "node_feats"
	EdgeKey  = "edge_feats"
)
