package expr

import (
	"slices"
	"sync"
)

// GradientPlan is how gradients of a program are computed: the sweeps over edges, what
// they read, and what travels for them. It never changes, and follows from the program,
// the operands and the element size alone, so it is the same on every rank.
type GradientPlan struct {
	Operands uint32 // whose gradients are computed
	Saves    uint32 // operands that backward reads
	Result   bool   // backward reads the result of forward
	// Fetch are the operands of side U whose boundary rows are fetched again from their
	// owners, Return those whose gradients of boundary rows go to the owners.
	Fetch, Return uint32
	// FetchBytes and ReturnBytes are the sizes of their rows, side by side.
	FetchBytes, ReturnBytes int
	// Push is how owners of sources compute the gradients instead, for which nothing is
	// fetched; nil where they cannot.
	Push *PushLayout
	// PickBytes is the size of what a ranked sum's reader sends in place of rows of gradients of sources; 0: those alone.
	PickBytes int

	deltas []*code // first these, for the softmaxes from the last level to the first
	source *code   // then sums for sources, by columns; nil where there are none
	target *code   // and sums for destinations and the others, by rows; nil where there are none
}

// plans are the plans of a program that were asked for.
type plans struct {
	mu      sync.Mutex
	made    map[planKey]*GradientPlan
	derived int // how many, for tests
}

type planKey struct {
	operands uint32
	elemSize int
	half     bool
}

// Differentiate plans the gradients of the operands in a set, whose elements have
// elemSize bytes. half: the gradient of the result is in bfloat16. A plan is derived once and kept with the program.
//
// Gradients of sources take a sweep over columns. Where that reads rows of sources, it
// computes the gradients of edges and parameters too, and those of destinations that are
// narrow or multiples of rows of sources. Other gradients take a sweep over rows.
func (p *Program) Differentiate(operands uint32, elemSize int, half bool) *GradientPlan {
	p.plans.mu.Lock()
	defer p.plans.mu.Unlock()
	key := planKey{operands, elemSize, half}
	if plan := p.plans.made[key]; plan != nil {
		return plan
	}
	if p.plans.made == nil {
		p.plans.made = map[planKey]*GradientPlan{}
	}
	p.plans.derived++
	plan := p.differentiate(operands, elemSize, half)
	p.plans.made[key] = plan
	return plan
}

// differentiate makes a plan. elemSize 0 keeps one sweep for sources and one for all
// others.
func (p *Program) differentiate(operands uint32, elemSize int, half bool) *GradientPlan {
	g := p.derive(operands)
	g.half = half
	plan := &GradientPlan{Operands: operands, Result: operands != 0 && (p.online >= 0 || p.reduce().readsResult)}
	for level := p.levels() - 1; level >= 0; level-- {
		var sinks []sink
		for s, x := range p.softmaxes {
			if x.level == level && g.products[s] >= 0 && s != p.online {
				sinks = append(sinks, sink{sinkRow, g.products[s], p.inputDelta(s)})
			}
		}
		if c := g.code(sinks); c != nil {
			plan.deltas = append(plan.deltas, c)
			plan.Saves |= c.values()
		}
	}
	var source, target []sink
	for i, o := range p.Operands {
		if reg := g.operands[i]; reg >= 0 && o.Side == U {
			source = append(source, sink{sinkColumn, reg, i})
		} else if reg >= 0 {
			kind := [...]sinkKind{V: sinkRow, E: sinkEdge, P: sinkParam}[o.Side]
			target = append(target, sink{kind, reg, i})
		}
	}
	if all := g.code(slices.Concat(source, target)); all != nil {
		values := all.values()
		plan.Saves |= values
		plan.Fetch = values & p.sources()
	}
	if len(source) > 0 {
		plan.Return = operands & p.sources()
		if plan.Fetch != 0 && elemSize > 0 {
			source, target = g.merge(source, target, elemSize)
		}
	}
	plan.source, plan.target = g.code(source), g.code(target)
	if plan.Fetch != 0 && plan.target == nil {
		plan.Push = plan.source.pushLayout(elemSize)
	}
	if plan.Fetch == 0 && plan.source != nil {
		plan.PickBytes = plan.source.pickBytes(elemSize)
	}
	plan.FetchBytes, plan.ReturnBytes = p.RowBytes(plan.Fetch, elemSize), p.RowWidth(plan.Return)*elemSize
	return plan
}

// merge moves what a sweep over columns computes well from target to source.
func (g *gradients) merge(source, target []sink, elemSize int) (columns, rows []sink) {
	all, scattered := newSelection(&code{g.p, g.nodes, nil, g.half}, elemSize), 0
	for _, s := range target {
		if s.kind == sinkRow && !all.scattersInPlace(s.reg) {
			scattered += g.nodes[s.reg].width
		}
	}
	for _, s := range target {
		switch {
		case s.kind == sinkRow && scattered <= scatterMost:
			source = append(source, sink{sinkScatter, s.reg, s.of})
		case s.kind == sinkRow:
			rows = append(rows, s)
		default:
			source = append(source, s)
		}
	}
	return source, rows
}

// scatterMost is the most elements an edge that a sweep over columns makes for
// destinations: wider ones are worth a sweep over rows, which adds them in registers.
const scatterMost = 32

// code is a sweep for some sinks, nil without any.
func (g *gradients) code(sinks []sink) *code {
	if len(sinks) == 0 {
		return nil
	}
	return &code{g.p, g.nodes, sinks, g.half}
}
