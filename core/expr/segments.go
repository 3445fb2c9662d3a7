package expr

import (
	"math"

	"sar/core/internal/ascending"
)

// A row or column with very many edges is not one task: it is cut into segments of equally
// many edges, whatever the threads. The first adds to where the result belongs; each
// other has sums of its own, which are added afterwards, in order.

// segmentParts is how many times the edges of a usual part a segment has.
const segmentParts = 4

// unit is the work of one task: places [from, to), or edges [k0, k1) of the row or column i.
type unit[T Float] struct {
	from, to int
	cut      bool
	i        int32
	k0, k1   int64
	own      *partial[T] // nil: adds to where the result belongs
}

// partial is what a segment adds up: of each sink, and of each softmax, one row.
type partial[T Float] struct {
	i         int32
	targets   []rows[T]
	most, inv []rows[T] // by softmax
	winner    []int32
}

// over sweeps over the edges of places [from, to), before each of which lie so many. edgesOf
// is called once for each place.
func (s *Sweep[T]) over(before []int32, from, to int, byColumn bool, edgesOf func(place int) (i int32, k0, k1 int64)) {
	units := s.units(before, from, to, byColumn, edgesOf)
	s.each(len(units), func(t *task[T], part int) {
		u := &units[part]
		if u.cut {
			t.own = u.own
			t.edges(u.i, u.k0, u.k1, byColumn)
			return
		}
		for place := u.from; place < u.to; place++ {
			i, k0, k1 := edgesOf(place)
			t.edges(i, k0, k1, byColumn)
		}
	})
	for i := range units {
		if units[i].own != nil {
			s.merge(units[i].own)
		}
	}
}

// units are runs of places of about equal work, and segments where a place has more edges than
// two of them. Of s.thin edges one is swept over. Units do not depend on the number of threads.
func (s *Sweep[T]) units(before []int32, from, to int, byColumn bool,
	edgesOf func(place int) (int32, int64, int64)) []unit[T] {
	thin, segment := max(1, s.thin), segmentParts*s.share()
	cost := func(i int) int64 { return int64(before[i]-before[from]) + int64(i-from)/4 }
	share := s.share() * thin
	if s.params {
		share = max(share, cost(to)/maxParts)
	}
	long := func(i int) bool { return int64(before[i+1]-before[i]) > 2*segment*thin && !s.run.plain }
	var out []unit[T]
	for _, r := range ascending.Runs(from, to, share, cost, long) {
		if !r.Heavy {
			out = append(out, unit[T]{from: r.From, to: r.To})
			continue
		}
		i, k0, k1 := edgesOf(r.From)
		for k := k0; k < k1; k += segment {
			u := unit[T]{cut: true, i: i, k0: k, k1: min(k+segment, k1)}
			if k > k0 {
				u.own = s.newPartial(i, byColumn)
			}
			out = append(out, u)
		}
	}
	return out
}

func (s *Sweep[T]) newPartial(i int32, byColumn bool) *partial[T] {
	p := &partial[T]{i: i, targets: append([]rows[T]{}, s.targets...)}
	row := func(width int, value T) rows[T] {
		data := make([]T, width)
		fillWith(data, value)
		return rows[T]{data: data, base: i}
	}
	def := &s.defs.reduces[s.p.Reduce]
	for n, k := range s.sinks {
		width := s.nodes[k.reg].width
		switch {
		case k.kind == sinkColumn && byColumn, k.kind == sinkRow && !byColumn, k.kind == sinkOnline:
			p.targets[n] = row(width, 0)
		case k.kind == sinkStep:
			p.targets[n] = row(width, def.start)
			p.winner = make([]int32, width)
			fillWith(p.winner, def.startWon)
		}
	}
	softmaxes := s.p.softmaxes
	p.most, p.inv = make([]rows[T], len(softmaxes)), make([]rows[T], len(softmaxes))
	for n, x := range softmaxes {
		p.most[n], p.inv[n] = row(x.width, T(math.Inf(-1))), row(x.width, 0)
	}
	return p
}

// merge adds what a segment has summed.
func (s *Sweep[T]) merge(p *partial[T]) {
	weighed := make([]factors[T], len(p.most))
	for i := range s.list {
		if c := &s.list[i]; c.op == opWeigh {
			weighed[c.arg] = newFactors[T](len(p.most[c.arg].data))
			s.run.mergeWeights(c.arg, p.i, p.most[c.arg].data, p.inv[c.arg].data, &weighed[c.arg])
		}
	}
	for n, k := range s.sinks {
		own, to := p.targets[n], s.targets[n]
		if own.data == nil || own.stride == to.stride && own.base == to.base {
			continue // added up elsewhere
		}
		y := to.data[int(p.i-to.base)*to.stride:][:len(own.data)]
		switch k.kind {
		case sinkOnline:
			s.run.mergeWeighed(y, own.data, &weighed[s.p.online], s.p.runOfHeads())
		case sinkStep:
			s.defs.reduces[s.p.Reduce].merge(s.ops, y, own.data, s.run.Winner[int(p.i)*len(y):][:len(y)], p.winner)
		default:
			s.ops.Add(y, own.data)
		}
	}
}
