package session

import (
	"context"
	"sync"

	"sar/core/internal/view"
	"sar/core/sample"
)

// Batch is one batch of a Sampler, on its way or done.
type Batch struct {
	sample.Batch
	done chan struct{}
	err  error

	mu    sync.Mutex
	ended bool
	freed bool
}

func (b *Batch) end(err error) {
	b.mu.Lock()
	b.err, b.ended = err, true
	drop := b.freed || err != nil
	b.mu.Unlock()
	if drop {
		b.Batch.Free()
	}
	close(b.done)
}

// Wait returns once the batch is there, or with the error that ended it. Where ctx ends before,
// it gives up waiting, and the batch goes on.
func (b *Batch) Wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// BatchArray is one kind of array that a batch has.
type BatchArray int

// What Array returns.
const (
	BatchNodes BatchArray = iota
	BatchIndptr
	BatchIndices
	BatchEdgeIDs
	BatchData
	BatchInput
	BatchOutput
)

// Array returns the memory of one array of a batch that is there, until Free,
// and how many of BatchNodes are destination nodes.
func (b *Batch) Array(layer int, what BatchArray, kind, column int) (array []byte, numDst int, err error) {
	if b.Layers == nil {
		return nil, 0, Invalid("the batch is not there")
	}
	bad := func(name string, n, have int) error {
		return Invalid("there is no %s %d: this batch has %d", name, n, have)
	}
	if layer < 0 || layer >= len(b.Layers) {
		return nil, 0, bad("layer", layer, len(b.Layers))
	}
	l, unit := b.Layers[layer], "relation"
	kinds := len(l.Edges)
	switch what {
	case BatchNodes, BatchInput, BatchOutput:
		unit, kinds = "node type", len(l.Nodes)
	case BatchIndptr, BatchIndices, BatchEdgeIDs, BatchData:
	default:
		return nil, 0, Invalid("there is no array %d of a batch", what)
	}
	if kind < 0 || kind >= kinds {
		return nil, 0, bad(unit, kind, kinds)
	}
	var columns [][]byte
	switch what {
	case BatchNodes:
		return view.Bytes(l.Nodes[kind]), l.NumDst[kind], nil
	case BatchIndptr:
		return view.Bytes(l.Edges[kind].Indptr), 0, nil
	case BatchIndices:
		return view.Bytes(l.Edges[kind].Indices), 0, nil
	case BatchEdgeIDs:
		return view.Bytes(l.Edges[kind].IDs), 0, nil
	case BatchData:
		columns = l.Edges[kind].Data
	case BatchInput:
		columns = b.Inputs[kind]
	case BatchOutput:
		columns = b.Outputs[kind]
	}
	if column < 0 || column >= len(columns) {
		return nil, 0, bad("column", column, len(columns))
	}
	return columns[column], 0, nil
}

// Free gives the memory of the batch back; one on its way is dropped when it comes.
func (b *Batch) Free() {
	b.mu.Lock()
	now := b.ended && !b.freed
	b.freed = true
	b.mu.Unlock()
	if now {
		b.Batch.Free()
	}
}
