package node

import (
	"fmt"
	"slices"
	"strings"

	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
	"sar/core/trust"
)

// Auto has each pair of workers use the best transport that works.
const Auto = "auto"

// transports are all there are, the best first.
var transports = []*transport.Transport{shm.Transport, tcp.Transport}

// Names are those of all transports, the best first.
func Names() (names []string) {
	for _, t := range transports {
		names = append(names, t.Name)
	}
	return names
}

// allow lists the transports that a worker may use which is told to use name.
func allow(name string) ([]*transport.Transport, error) {
	if name == "" || name == Auto {
		return transports, nil
	}
	for _, t := range transports {
		if t.Name == name {
			return []*transport.Transport{t}, nil
		}
	}
	return nil, fmt.Errorf("transport %q is not known: there are %s, %s", name, Auto, strings.Join(Names(), ", "))
}

// place is where in the list the transport with such connections is, -1 if there is none.
func place(p trust.Purpose) int {
	return slices.IndexFunc(transports, func(t *transport.Transport) bool { return t.Purpose == p })
}

func passesDescriptor(p trust.Purpose) bool {
	at := place(p)
	return at >= 0 && transports[at].PassesDescriptor
}

// taken is what a listener of the network lets in.
func taken(network string) trust.Policy {
	p := trust.Policy{Purposes: []trust.Purpose{trust.Control}}
	for _, t := range transports {
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
