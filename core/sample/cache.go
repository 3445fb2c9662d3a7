package sample

import (
	"sync"

	"sar/core/mem"
)

// Cache keeps input features of nodes that other ranks own, in a bounded number
// of bytes: of the nodes that batches meet first, which are those that they
// meet most. Nothing leaves it, so features must not change while it is used.
// Samplers with the same columns may share it, each working on its own.
type Cache struct {
	mu    sync.Mutex
	types []cachedType
}

type cachedType struct {
	room  int
	nodes *table            // numbers are those of the rows
	rows  []mem.Array[byte] // by column; a row is written once, before its node is in nodes
}

// NewCache makes a cache of at most limit bytes, shared out among node types by
// what all their rows would take.
func NewCache(g *Graph, inputs [][]Column, limit int64) (*Cache, error) {
	c := &Cache{types: make([]cachedType, len(g.Types))}
	size, all := make([]int64, len(g.Types)), int64(0)
	far := func(t int) int64 { return g.Types[t][g.World] - g.Types[t][0] - int64(g.Own(t)) }
	for t := range inputs {
		for _, column := range inputs[t] {
			size[t] += int64(column.RowBytes)
		}
		all += size[t] * far(t)
	}
	for t := range c.types {
		k := &c.types[t]
		k.nodes = newTable(g.Types[t], g.Rank, fewNodes(g.Rels))
		if size[t] == 0 {
			continue
		}
		k.room = int(far(t))
		if all > limit {
			k.room = int(float64(far(t)) * float64(limit) / float64(all))
		}
		for _, column := range inputs[t] {
			rows, err := mem.Make[byte](mem.Features, k.room*column.RowBytes)
			if err != nil {
				c.Free()
				return nil, err
			}
			k.rows = append(k.rows, rows)
		}
	}
	return c, nil
}

// Free unmaps the rows.
func (c *Cache) Free() {
	for t := range c.types {
		for i := range c.types[t].rows {
			c.types[t].rows[i].Free()
		}
	}
}

// cacheUse is what a batch takes from the cache, and puts into it, of one type.
type cacheUse struct {
	row, at []int32 // rows of the cache, and the numbers of their nodes in the batch
	keep    []int32 // numbers in the batch of nodes that there is room for
}

// need are own rows of rank q, and the numbers of their nodes in the batch, that
// must be fetched: all that are not in the cache.
func (s *Sampler) need(q, t int) (rows, place []int32) {
	rows, place = s.ask[q].rows[t], s.ask[q].at[t]
	if s.cache == nil {
		return rows, place
	}
	c, use, nodes := &s.cache.types[t], &s.use[t], s.tables[t].Nodes
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	room := c.room - len(c.nodes.Nodes)
	missRows, missPlace := s.missed[q].rows[t][:0], s.missed[q].at[t][:0]
	for i, at := range place {
		if n := c.nodes.find(nodes[at]); n >= 0 {
			use.row, use.at = append(use.row, n), append(use.at, at)
			continue
		}
		missRows, missPlace = append(missRows, rows[i]), append(missPlace, at)
		if len(use.keep) < room {
			use.keep = append(use.keep, at)
		}
	}
	s.missed[q].rows[t], s.missed[q].at[t] = missRows, missPlace
	return missRows, missPlace
}

// keep puts rows that were fetched for a batch into the cache.
func (s *Sampler) keep(b *Batch) {
	if s.cache == nil {
		return
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	for t := range s.use {
		c, nodes := &s.cache.types[t], s.tables[t].Nodes
		for _, at := range s.use[t].keep {
			n := len(c.nodes.Nodes)
			if n == c.room {
				break
			}
			if c.nodes.find(nodes[at]) >= 0 { // another batch was faster
				continue
			}
			for k, column := range s.cfg.Inputs[t] {
				size := column.RowBytes
				copy(c.rows[k].Data[n*size:(n+1)*size], b.Inputs[t][k][int(at)*size:])
			}
			c.nodes.number(nodes[at])
		}
	}
}
