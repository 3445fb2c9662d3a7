package node

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		encrypted  bool
	}{{"shm", shm.Transport.Name, false}, {"tcp", tcp.Transport.Name, false}, {"tls", tcp.Transport.Name, true}} {
		t.Run(c.name, func(t *testing.T) {
			conformance.Run(t, c.name, func(t testing.TB, size, linkBytes int) [][]transport.Link {
				return meshAlone(t, openOver(t, c.encrypted, repeat(c.kind, size)...), linkBytes)
			})
		})
	}
}

// meshAlone makes links that live on when their nodes have ended.
func meshAlone(t testing.TB, nodes []*Node, linkBytes int) [][]transport.Link {
	links := mustMesh(t, nodes, 1, linkBytes)
	for _, n := range nodes {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	return links
}

func TestAutoChooses(t *testing.T) {
	nodes := open(t, Auto, tcp.Transport.Name, Auto, "")
	links := mustMesh(t, nodes, 1, 1<<16)
	defer closeLinks(links)
	for a, row := range links {
		for b, l := range row {
			want := shm.Transport.Name
			if a == 1 || b == 1 { // a node told to use tcp brings its peers to it
				want = tcp.Transport.Name
			}
			if l != nil && l.Properties().Kind != want {
				t.Errorf("link %d-%d is %s, want %s", a, b, l.Properties().Kind, want)
			}
		}
	}
}

// TestOtherHost has endpoints claim another host.
func TestOtherHost(t *testing.T) {
	for _, kind := range []string{Auto, shm.Transport.Name} {
		nodes := open(t, kind, kind)
		for _, n := range nodes {
			for r := range n.peers {
				if r != n.cfg.Rank {
					n.peers[r].HostID, n.peers[r].Host = "elsewhere", "farhost"
				}
			}
		}
		links, errs := mesh(nodes, 1, 1<<16, patience)
		if kind == Auto {
			if links[0][1].Properties().Kind != tcp.Transport.Name || links[1][0].Properties().Kind != tcp.Transport.Name {
				t.Error("not tcp between hosts")
			}
			closeLinks(links)
			continue
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "farhost") || !strings.Contains(err.Error(), hostName()) {
				t.Errorf("got %v, want an error naming both hosts", err)
			}
		}
	}
}

// TestShmFails has the Unix socket be somebody else's: auto goes over tcp.
func TestShmFails(t *testing.T) {
	nodes := open(t, Auto, Auto)
	nodes[1].peers[0].Unix = "@sar-nobody-listens-here"
	links := mustMesh(t, nodes, 1, 1<<16)
	defer closeLinks(links)
	if k := links[0][1].Properties().Kind; k != tcp.Transport.Name {
		t.Errorf("link is %s", k)
	}
	conns := control(t, nodes)
	for _, row := range conns {
		for _, c := range row {
			if c != nil {
				_ = c.Close()
			}
		}
	}
}

// dummy is a transport that only this test has: frames over a Unix socket. It cannot accept
// where fails says so.
func dummy(fails bool) *transport.Transport {
	offer := func(linkBytes int) (transport.End, error) { return dummyEnd(linkBytes), nil }
	return &transport.Transport{
		Name: "dummy", Purpose: 5, Network: "unix", Reach: tcp.Transport.Reach, Offer: offer,
		Accept: func(_, linkBytes int) (transport.End, error) {
			if fails {
				return nil, errors.New("the dummy fails")
			}
			return offer(linkBytes)
		},
	}
}

type dummyEnd int

func (dummyEnd) Descriptor() int { return -1 }
func (dummyEnd) Drop()           {}

func (e dummyEnd) Link(conn net.Conn, _, peer transport.Endpoint) (transport.Link, error) {
	l, err := tcp.NewLink(conn, peer.Rank, int(e))
	return dummyLink{l}, err
}

type dummyLink struct{ transport.Link }

func (dummyLink) Properties() transport.Properties { return transport.Properties{Kind: "dummy"} }

func register(t *testing.T, d *transport.Transport) {
	before := transports
	transports = append([]*transport.Transport{d}, before...)
	t.Cleanup(func() { transports = before })
}

// TestAdded adds a transport, which takes a line in the list.
func TestAdded(t *testing.T) {
	register(t, dummy(false))
	conformance.Run(t, "dummy", func(t testing.TB, size, linkBytes int) [][]transport.Link {
		return meshAlone(t, open(t, repeat(Auto, size)...), linkBytes)
	})
	for _, names := range [][]string{{"dummy", tcp.Transport.Name}, {shm.Transport.Name, "dummy"}} {
		_, errs := mesh(open(t, names...), 1, 1<<16, time.Second)
		for _, err := range errs {
			if err == nil {
				t.Errorf("%v went through", names)
			}
		}
	}
}

// TestAddedFails has the first transport fail: the second is taken.
func TestAddedFails(t *testing.T) {
	register(t, dummy(true))
	links := mustMesh(t, open(t, Auto, Auto), 1, 1<<16)
	defer closeLinks(links)
	if k := links[0][1].Properties().Kind; k != shm.Transport.Name {
		t.Errorf("link is %s", k)
	}
	for _, err := range second(mesh(open(t, "dummy", Auto), 1, 1<<16, time.Second)) {
		if err == nil {
			t.Error("a link of a transport that fails")
		}
	}
}

func second(_ [][]transport.Link, errs []error) []error { return errs }
