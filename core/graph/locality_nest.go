package graph

// nestLooks is the edges of a row that are looked at to find out which cluster
// its own one should be joined with. A cluster has many rows, so few will do.
const nestLooks = 4

// nest writes the rows by clusters of clusters, in each by the cluster that
// label names, in each of those, if byInner is set, by its label in inner, and
// those that agree in all that ascending. inner and spare are scratch afterwards,
// and label names clusters of clusters.
func (c *clusters[P]) nest(order, inner, spare []int32, byInner bool) {
	if byInner {
		c.sort(order, nil, inner)
		c.sort(spare, order, c.label)
	} else {
		c.sort(spare, nil, c.label)
	}
	// label keeps naming clusters while they are joined; joined says where to.
	joined := inner
	for l := range joined {
		joined[l] = int32(l)
	}
	var met []int32
	for from, to := 0, 0; from < len(spare); from = to {
		own := c.label[spare[from]]
		for to = from; to < len(spare) && c.label[spare[to]] == own; to++ {
		}
		met = c.join(joined, spare[from:to], met[:0])
	}
	for i, l := range c.label {
		c.label[i] = joined[l]
	}
	c.sort(order, spare, c.label)
}

// join moves one cluster, whose rows these are, to the cluster of clusters that
// it shares most edges with and that has room, as move does with a row. size is
// of clusters of clusters here. met is scratch, and returned since it may have
// grown.
func (c *clusters[P]) join(joined, rows, met []int32) []int32 {
	cluster, size := c.label[rows[0]], int32(len(rows))
	for _, i := range rows {
		run, _ := c.neighbours(int(i))
		for k, step := 0, 1+len(run)/nestLooks; k < len(run); k += step {
			l := c.label[run[k]]
			if l == cluster {
				continue
			}
			l = joined[l]
			if c.count[l] == 0 {
				met = append(met, l)
			}
			c.count[l]++
		}
	}
	own := joined[cluster]
	best, to := c.count[own], own
	for _, l := range met {
		if c.count[l] > best && c.size[l]+size <= farRows {
			best, to = c.count[l], l
		}
		c.count[l] = 0
	}
	c.size[own] -= size
	c.size[to] += size
	joined[cluster] = to
	return met
}
