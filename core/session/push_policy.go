package session

import (
	"encoding/binary"
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/expr"
	"sar/core/graph"
	"sar/core/mem"
)

// Exchange says who computes gradients of edge expressions over edges between two workers,
// where backward reads values of sources: the reader of the sources, who fetches them again
// and sends gradients home (pull), or their owner, whom readers send rows of destinations (push).
type Exchange int32

const (
	ExchangeAuto Exchange = iota // what is cheaper, for each pair of workers
	ExchangePull
	ExchangePush // wherever a program can
	numExchanges
)

// SetExchange chooses for all programs from now on. Every rank must choose the same.
func (s *Session) SetExchange(how Exchange) error {
	if how < 0 || how >= numExchanges {
		return Invalid("exchange is %d: 0 is what is cheaper, 1 pull, 2 push", how)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange = how
	return nil
}

// What computing at the owner costs beside what it saves. Rows of destinations come a
// window at a time, so a source's row is read and its gradient read and written anew for about
// every edge, in place of once: so many nanoseconds a byte. What a byte that travels takes, the
// link says; over shared memory it is so little that edges are kept twice only where there
// are few of them for each source (5 of GAT's).
const rereadCost = 0.005

// shard is the edges from sources of one worker into rows of another, in numbers
// that both know.
type shard struct{ sources, rows, edges int64 }

// rowSizes are the bytes of what travels both ways for a source (pull) and for a
// destination (push), and of the gradients of a source.
type rowSizes struct{ pull, push, gradient int }

// pushes tells whether the owner of the sources computes.
func (e Exchange) pushes(x shard, size rowSizes, byteCost float64) bool {
	switch {
	case e == ExchangePull || x.edges == 0:
		return false
	case e == ExchangePush:
		return true
	}
	saved := float64(x.sources*int64(size.pull)-x.rows*int64(size.push)) * byteCost
	return saved > float64(x.edges)*float64(3*size.gradient)*rereadCost
}

// shards are those between this worker and the others, by round: out into rows of
// peer Rank+r, in from sources of peer Rank-r.
type shards struct{ out, in []shard }

type pushKey struct {
	rel *graph.Relation
	rowSizes
	how Exchange
}

// pushing is what a graph knows of the exchange of its relations.
type pushing struct {
	shards map[*graph.Relation]*shards
	plans  map[pushKey]*exchange.PushPlan
}

// pushPlan decides which pairs of workers push in backward; nil: none. What they need
// for that is built. Collective where it has not been asked the same before.
func (g *Graph) pushPlan(rel *graph.Relation, plan *expr.GradientPlan) (*exchange.PushPlan, error) {
	s := g.session
	s.mu.Lock()
	how := s.exchange
	s.mu.Unlock()
	// A block is not used often enough for a structure of its own.
	if how == ExchangePull || rel.Parts == 1 || plan.Push == nil || g.block != nil {
		return nil, nil
	}
	size := rowSizes{pull: plan.FetchBytes + plan.ReturnBytes, push: plan.Push.SentBytes + plan.Push.ReturnedBytes, gradient: plan.ReturnBytes}
	key := pushKey{rel, size, how}
	push, ok := g.pushing.plans[key]
	if ok {
		return push, nil
	}
	err := s.collective("choosing how gradients of edge expressions travel", func() (err error) {
		push, err = g.decide(rel, size, how)
		return err
	})
	if err != nil {
		return nil, err
	}
	if g.pushing.plans == nil {
		g.pushing.plans = map[pushKey]*exchange.PushPlan{}
	}
	g.pushing.plans[key] = push
	return push, nil
}

func (g *Graph) decide(rel *graph.Relation, size rowSizes, how Exchange) (*exchange.PushPlan, error) {
	s := g.session
	train, err := s.Comm(Train)
	if err != nil {
		return nil, err
	}
	all, err := g.shardsOf(train, rel)
	if err != nil {
		return nil, err
	}
	p := rel.Parts
	push := &exchange.PushPlan{Out: make([]bool, p), In: make([]bool, p)}
	var pushed, pulls, lacking int64
	for r := 1; r < p; r++ {
		to, from := (rel.Rank+r)%p, (rel.Rank-r+p)%p
		push.Out[r] = how.pushes(all.out[r], size, train.Link(to).ByteCost)
		push.In[r] = how.pushes(all.in[r], size, train.Link(from).ByteCost)
		switch {
		case push.In[r]:
			pushed++
			if len(rel.Reached) == 0 || len(rel.Reached[r].Data) == 0 {
				lacking++
			}
		case all.in[r].edges > 0:
			pulls++
		}
	}
	var total []byte
	for _, n := range []int64{pushed, pulls, lacking, int64(how)} {
		total = binary.LittleEndian.AppendUint64(total, uint64(n))
	}
	if err := train.AllReduce(total, comm.Int64, comm.Sum); err != nil {
		return nil, err
	}
	sum := func(i int) int64 { return int64(binary.LittleEndian.Uint64(total[8*i:])) }
	if sum(3) != int64(how)*int64(p) {
		return nil, Invalid("the ranks have different settings of exchange, of which this one has %d: set the same on all", how)
	}
	if sum(0) == 0 {
		return nil, nil
	}
	push.Pulls = sum(1) > 0
	if sum(2) > 0 {
		err = g.buildOutgoing(train, rel, all, push)
	}
	return push, err
}

// shardsOf tells the owners of boundary rows how many edges leave them, into how many rows, and
// learns the same of own rows: 16 bytes a pair.
func (g *Graph) shardsOf(train *comm.Communicator, rel *graph.Relation) (*shards, error) {
	if x := g.pushing.shards[rel]; x != nil {
		return x, nil
	}
	p := rel.Parts
	x := &shards{out: make([]shard, p), in: make([]shard, p)}
	send, recv := make([][]byte, p), make([][]byte, p)
	for q := range p {
		send[q], recv[q] = make([]byte, 16), make([]byte, 16)
	}
	place := rel.Places()
	for r := 1; r < p; r++ {
		h := rel.Halo[r]
		x.in[r] = shard{
			sources: int64(h.End - h.Begin), rows: int64(rel.Reach(r, place).Len()),
			edges: int64(rel.ColPtr.Data[h.End] - rel.ColPtr.Data[h.Begin]),
		}
		to := send[h.Peer]
		binary.LittleEndian.PutUint64(to, uint64(x.in[r].rows))
		binary.LittleEndian.PutUint64(to[8:], uint64(x.in[r].edges))
	}
	if err := train.AllToAll(send, recv); err != nil {
		return nil, err
	}
	for r := 1; r < p; r++ {
		from := recv[(rel.Rank+r)%p]
		x.out[r] = shard{
			sources: int64(len(rel.Send[r].Data)), rows: int64(binary.LittleEndian.Uint64(from)),
			edges: int64(binary.LittleEndian.Uint64(from[8:])),
		}
		if o := x.out[r]; o.rows < 0 || o.rows > o.edges || o.edges >= 1<<31 || (o.edges == 0) != (o.sources == 0) {
			return nil, fmt.Errorf("rank %d names %d edges from %d rows of this rank into %d of its own", (rel.Rank+r)%p, o.edges, o.sources, o.rows)
		}
	}
	if g.pushing.shards == nil {
		g.pushing.shards = map[*graph.Relation]*shards{}
	}
	g.pushing.shards[rel] = x
	return x, nil
}

// lastEdge marks the last edge of a source among the numbers that travel.
const lastEdge = 1 << 31

// buildOutgoing gives owners of sources the edges over which they will compute: 4 bytes an edge.
func (g *Graph) buildOutgoing(train *comm.Communicator, rel *graph.Relation, all *shards, push *exchange.PushPlan) error {
	p := rel.Parts
	if rel.Outgoing == nil {
		rel.Outgoing, rel.Reached = make([]graph.Outgoing, p), make([]mem.Array[int32], p)
	}
	send, recv := make([]int, p), make([]int, p)
	reach, place := make([]*graph.Reach, p), rel.Places()
	for r := 1; r < p; r++ {
		if push.In[r] && len(rel.Reached[r].Data) == 0 {
			reach[r] = rel.Reach(r, place)
			send[r] = int(all.in[r].edges)
		}
		if push.Out[r] && len(rel.Outgoing[r].Ptr.Data) == 0 {
			o := all.out[r]
			if err := rel.Outgoing[r].Make(int(o.sources), int(o.rows), o.edges); err != nil {
				return err
			}
			recv[r] = int(o.edges)
		}
	}
	column := make([]int32, p) // of the next edge that leaves, by round
	for r := 1; r < p; r++ {
		column[r] = rel.Halo[r].Begin
	}
	put := func(r, i int, dst []byte) {
		ptr := rel.ColPtr.Data
		k := ptr[rel.Halo[r].Begin] + int32(i)
		for k >= ptr[column[r]+1] {
			column[r]++
		}
		number := uint32(reach[r].Number(rel.Row.Data[k]))
		if k+1 == ptr[column[r]+1] {
			number |= lastEdge
		}
		binary.LittleEndian.PutUint32(dst, number)
	}
	source := 0 // of the next edge that comes
	get := func(r, i int, src []byte) error {
		o, peer := &rel.Outgoing[r], (rel.Rank+r)%p
		if i == 0 {
			source = 0
		}
		number := binary.LittleEndian.Uint32(src)
		row, sources := int(number&^lastEdge), len(o.Ptr.Data)-1
		if row >= o.NumRows || source >= sources {
			return fmt.Errorf("rank %d names an edge from source %d into row %d, of %d and %d", peer, source, row, sources, o.NumRows)
		}
		o.Put(i, int32(row))
		if number&lastEdge != 0 {
			source++
			o.Ptr.Data[source] = int32(i + 1)
		}
		if i+1 == recv[r] && source != sources {
			return fmt.Errorf("rank %d names edges from %d sources of %d", peer, source, sources)
		}
		return nil
	}
	if err := g.session.home(train, rel, send, recv, 4, put, get); err != nil {
		return err
	}
	for r := 1; r < p; r++ {
		if recv[r] > 0 {
			rel.Outgoing[r].Sort(pool.Threads())
		}
		if reach[r] == nil {
			continue
		}
		rows, err := mem.Make[int32](mem.Structure, reach[r].Len())
		if err != nil {
			return err
		}
		reach[r].List(rows.Data, rel.Order.Data)
		rel.Reached[r] = rows
	}
	return nil
}
