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
	"sar/core/trust"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		encrypted  bool
	}{{"shm", shm.Name, false}, {"tcp", tcp.Name, false}, {"tls", tcp.Name, true}} {
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
	nodes := open(t, Auto, tcp.Name, Auto, "")
	links := mustMesh(t, nodes, 1, 1<<16)
	defer closeLinks(links)
	for a, row := range links {
		for b, l := range row {
			want := shm.Name
			if a == 1 || b == 1 { // a node told to use tcp brings its peers to it
				want = tcp.Name
			}
			if l != nil && l.Properties().Kind != want {
				t.Errorf("link %d-%d is %s, want %s", a, b, l.Properties().Kind, want)
			}
		}
	}
}

// TestOtherHost has endpoints claim another host.
func TestOtherHost(t *testing.T) {
	for _, kind := range []string{Auto, shm.Name} {
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
			if links[0][1].Properties().Kind != tcp.Name || links[1][0].Properties().Kind != tcp.Name {
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
	if k := links[0][1].Properties().Kind; k != tcp.Name {
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

// dummy is a transport that only this test has: frames over a Unix socket.
type dummy struct {
	tcp.Transport
	fails bool // to accept
}

func (dummy) Name() string           { return "dummy" }
func (dummy) Purpose() trust.Purpose { return 5 }
func (dummy) Network() string        { return "unix" }

func (dummy) Offer(linkBytes int) (transport.End, error) { return dummyEnd(linkBytes), nil }

func (d dummy) Accept(_, linkBytes int) (transport.End, error) {
	if d.fails {
		return nil, errors.New("the dummy fails")
	}
	return dummyEnd(linkBytes), nil
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

func register(t *testing.T, d dummy) {
	before := transports
	transports = append([]transport.Transport{d}, before...)
	t.Cleanup(func() { transports = before })
}

// TestAdded adds a transport, which takes a line in the list.
func TestAdded(t *testing.T) {
	register(t, dummy{})
	conformance.Run(t, "dummy", func(t testing.TB, size, linkBytes int) [][]transport.Link {
		return meshAlone(t, open(t, repeat(Auto, size)...), linkBytes)
	})
	for _, names := range [][]string{{"dummy", tcp.Name}, {shm.Name, "dummy"}} {
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
	register(t, dummy{fails: true})
	links := mustMesh(t, open(t, Auto, Auto), 1, 1<<16)
	defer closeLinks(links)
	if k := links[0][1].Properties().Kind; k != shm.Name {
		t.Errorf("link is %s", k)
	}
	for _, err := range second(mesh(open(t, "dummy", Auto), 1, 1<<16, time.Second)) {
		if err == nil {
			t.Error("a link of a transport that fails")
		}
	}
}

func second(_ [][]transport.Link, errs []error) []error { return errs }
