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
var transports = []transport.Transport{shm.Transport{}, tcp.Transport{}}

// allow lists the transports that a worker may use which is told to use name.
func allow(name string) ([]transport.Transport, error) {
	if name == "" || name == Auto {
		return transports, nil
	}
	names := []string{Auto}
	for _, t := range transports {
		if t.Name() == name {
			return []transport.Transport{t}, nil
		}
		names = append(names, t.Name())
	}
	last := len(names) - 1
	return nil, fmt.Errorf("transport %q is not known: use %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// byPurpose is the transport with such connections, nil if there is none.
func byPurpose(p trust.Purpose) transport.Transport {
	for _, t := range transports {
		if t.Purpose() == p {
			return t
		}
	}
	return nil
}

func passesDescriptor(p trust.Purpose) bool {
	t := byPurpose(p)
	return t != nil && t.PassesDescriptor()
}

func nameOf(p trust.Purpose) string {
	if t := byPurpose(p); t != nil {
		return t.Name()
	}
	return fmt.Sprintf("transport %d", p)
}

// taken is what a listener of the network lets in.
func taken(network string) trust.Policy {
	p := trust.Policy{Purposes: []trust.Purpose{trust.Control}}
	for _, t := range transports {
		if t.Network() == network {
			p.Purposes = append(p.Purposes, t.Purpose())
		}
	}
	return p
}

func (n *Node) allows(t transport.Transport) bool { return slices.Contains(n.allowed, t) }

// allowsAfter tells whether a dialer may try another transport after that of purpose p.
func (n *Node) allowsAfter(p trust.Purpose) bool {
	at := slices.IndexFunc(transports, func(t transport.Transport) bool { return t.Purpose() == p })
	return slices.ContainsFunc(transports[at+1:], n.allows)
}

// uses tells whether this worker may use a transport of the network.
func (n *Node) uses(network string) bool {
	return slices.ContainsFunc(n.allowed, func(t transport.Transport) bool { return t.Network() == network })
}

// reaching lists the transports by which this worker can reach a peer, of which there must be one.
func (n *Node) reaching(peer transport.Endpoint) ([]transport.Transport, error) {
	var list []transport.Transport
	var why error
	for _, t := range n.allowed {
		if err := t.Reach(n.endpoint, peer); err != nil {
			why = err
			continue
		}
		list = append(list, t)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is asked for, but %w: use another transport, or %s", n.cfg.Transport, why, Auto)
	}
	return list, nil
}

// reachesOver tells whether a transport of the network reaches a peer.
func (n *Node) reachesOver(network string, peer transport.Endpoint) bool {
	return slices.ContainsFunc(n.allowed, func(t transport.Transport) bool {
		return t.Network() == network && t.Reach(n.endpoint, peer) == nil
	})
}
