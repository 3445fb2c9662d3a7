package expr

// apart is what Peers has summed for destinations, apart from what Own has.
type apart[T Float] struct{ from, to []T }

// Concurrent prepares Own and Peers to run at the same time, whichever is first: what
// Peers adds up for destinations goes to rows of its own until Finish, so that sums have
// the same bits every time. It is false, and changes nothing, where those would be
// wider than scatterMost: then Own has to come first. Own lets Peers and whatever else
// computes go first. The phases of Deltas must have ended.
func (b *Backward[T]) Concurrent() (bool, error) {
	if b.Own == nil || b.Peers == nil {
		return false, nil
	}
	c, width := b.Peers.code, 0
	for _, k := range c.sinks {
		if k.kind == sinkScatter {
			width += c.nodes[k.reg].width
		}
	}
	if width > scatterMost {
		return false, nil
	}
	for n, k := range c.sinks {
		if k.kind != sinkScatter {
			continue
		}
		to := &b.Peers.targets[n]
		made, err := b.run.make(len(to.data))
		if err != nil {
			return false, err
		}
		b.apart = append(b.apart, apart[T]{made, to.data})
		to.data = made
	}
	b.Own.idle = true
	b.Own.fillPacked()
	b.Peers.fillPacked()
	return true, nil
}

// join adds up what was summed apart.
func (b *Backward[T]) join() {
	const share = 1 << 16
	for _, x := range b.apart {
		b.run.Pool.Run((len(x.to)+share-1)/share, func(t int) {
			end := min(len(x.to), (t+1)*share)
			b.Peers.ops.Add(x.to[t*share:end], x.from[t*share:end])
		})
	}
}

// fillPacked makes what the sweep reads side by side, if that has not been done.
func (s *Sweep[T]) fillPacked() {
	if s.packed != nil && s.packed.fill != nil {
		s.packed.fill()
	}
}
