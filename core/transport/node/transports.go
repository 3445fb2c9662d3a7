package node

import (
	"fmt"
	"slices"
	"strings"

	"sar/core/transport"
	"sar/core/transport/foreign"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
	"sar/core/trust"
)

// Auto has each pair of workers use the best transport that works.
const Auto = "auto"

// transports are all that are SAR's own, the best first. A node may have a library's besides.
var transports = []*transport.Transport{shm.Transport, tcp.Transport}

// Names are those of SAR's own transports, the best first.
func Names() (names []string) {
	for _, t := range transports {
		names = append(names, t.Name)
	}
	return names
}

// choose finds the transports that a worker may use which is told to use one by name, and opens
// a library where that takes one.
func (n *Node) choose(name string) error {
	n.transports = transports
	if name == "" || name == Auto {
		// Each worker decides for itself and tells its peers, and a pair of workers uses the library where both do.
		if found := foreign.Automatic(); found != nil && n.cfg.Identity.Certificate() == [32]byte{} {
			_ = n.open(found) // nobody has asked for it: without it there is tcp
		}
		n.allowed = n.transports
		return nil
	}
	if found := foreign.Find(name); found != nil {
		if err := n.open(found); err != nil {
			return err
		}
	}
	for _, t := range n.transports {
		if t.Name == name {
			n.allowed = []*transport.Transport{t}
			return nil
		}
	}
	known := append([]string{Auto}, Names()...)
	for _, p := range foreign.Registered() {
		known = append(known, p.Name())
	}
	return fmt.Errorf("transport %q is not known: there are %s", name, strings.Join(known, ", "))
}

// open has a library carry links between hosts, which it does better than TCP.
func (n *Node) open(p foreign.Provider) error {
	library, err := foreign.Open(p, n.cfg.Identity)
	if err != nil {
		return err
	}
	n.library = library
	at := slices.Index(n.transports, tcp.Transport)
	n.transports = slices.Insert(slices.Clone(n.transports), at, n.library.Transport())
	return nil
}

// place is where in the list the transport with such connections is, -1 if there is none.
func (n *Node) place(p trust.Purpose) int {
	return slices.IndexFunc(n.transports, func(t *transport.Transport) bool { return t.Purpose == p })
}

// passesDescriptor tells whether a descriptor travels with a hello for a purpose.
func passesDescriptor(p trust.Purpose) bool {
	return slices.ContainsFunc(transports, func(t *transport.Transport) bool {
		return t.Purpose == p &&
			t.PassesDescriptor
	})
}

// taken is what a listener of the network lets in.
func (n *Node) taken(network string) trust.Policy {
	p := trust.Policy{Purposes: []trust.Purpose{trust.Control}}
	for _, t := range n.transports {
		if t.Network == network {
			p.Purposes = append(p.Purposes, t.Purpose)
		}
	}
	return p
}

// uses tells whether this worker may use a transport of the network.
func (n *Node) uses(network string) bool {
	return slices.ContainsFunc(n.allowed, func(t *transport.Transport) bool { return t.Network == network })
}

// reaching lists the transports by which this worker can reach a peer, of which there must be one.
func (n *Node) reaching(peer transport.Endpoint) (list []*transport.Transport, err error) {
	for _, t := range n.allowed {
		if no := t.Reach(n.endpoint, peer); no == nil {
			list = append(list, t)
		} else {
			err = fmt.Errorf("%s is asked for, but %w: use another transport, or %s", n.cfg.Transport, no, Auto)
		}
	}
	if len(list) > 0 {
		err = nil
	}
	return list, err
}
