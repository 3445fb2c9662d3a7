package comm

import (
	"errors"
	"strings"
	"testing"
)

// Ranks in operations of one kind that belong to other layers, or to other forward operations,
// end with an error that names both; where a rank does not know its layer, they do not.
func TestPlaces(t *testing.T) {
	t.Parallel()
	layer := func(n uint32) Place { return Place{Layer: n, Name: "of its own"} }
	for name, test := range map[string]struct {
		places [2]Place
		words  []string // of the error; none: there is none
	}{
		"same layer":    {places: [2]Place{layer(3), layer(3)}},
		"unknown layer": {places: [2]Place{layer(0), layer(3)}},
		"other layer":   {places: [2]Place{layer(3), layer(4)}, words: []string{"layer 3", "layer 4"}},
		"same forward":  {places: [2]Place{{Of: 1}, {Of: 1}}},
		"other forward": {places: [2]Place{{Of: 1, Name: "first"}, {Of: 2, Name: "second"}},
			words: []string{"of first (whose forward was operation 1)", "of second (whose forward was operation 2)"}},
		"none and forward": {places: [2]Place{{}, {Of: 2}}, words: []string{"something else"}},
	} {
		errs := onRanks(t, Config{World: 2}, 1<<20, func(c *Communicator) error {
			c.NameLayer(3, "layer 3")
			c.NameLayer(4, "layer 4")
			for i, name := range []string{"first", "second"} {
				if n := c.SetPlace(Place{Name: name}); n != uint64(i+1) {
					t.Errorf("operation %d has number %d", i+1, n)
				}
				if err := c.Barrier(); err != nil {
					return err
				}
			}
			p := test.places[c.Rank()]
			if p.Name == "of its own" {
				p.Name = map[uint32]string{0: "", 3: "layer 3", 4: "layer 4"}[p.Layer]
			}
			c.SetPlace(p)
			op, err := c.BeginSending(KindAggregate, None, "rows")
			if err != nil {
				return err
			}
			peer := 1 - c.Rank()
			if err := op.Send(peer, 0, 0, nil); err != nil {
				return op.End(err)
			}
			_, err = op.Next(peer, 0, 0)
			if err == nil {
				op.Release(peer)
			}
			return op.End(err)
		})
		for r, err := range errs {
			var differ *ScheduleError
			switch {
			case test.words == nil && err != nil:
				t.Errorf("%s: rank %d: %v", name, r, err)
			case test.words != nil && !errors.As(err, &differ):
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
			for _, word := range test.words {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%s: rank %d: %v does not say %q", name, r, err, word)
				}
			}
		}
	}
}
