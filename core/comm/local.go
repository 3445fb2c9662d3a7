package comm

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/transport"
	"sar/core/transport/inproc"
)

// Local makes the groups of cfg.World ranks that live in this process and are
// joined by inproc links: everything a Group does, without a network. For tests
// and for trying things. cfg.Rank and the address of the master are not used.
func Local(cfg Config) ([]*Group, error) {
	cfg = cfg.withDefaults()
	n := cfg.World
	var session [16]byte
	if _, err := rand.Read(session[:]); err != nil {
		return nil, err
	}
	ends := make([]transport.Endpoint, n)
	conns := make([][]net.Conn, n)
	for r := range ends {
		ends[r] = transport.Endpoint{Rank: r, Host: fmt.Sprintf("local-%d", r), PID: os.Getpid()}
		conns[r] = make([]net.Conn, n)
	}
	for a := range n {
		for b := a + 1; b < n; b++ {
			var err error
			if conns[a][b], conns[b][a], err = socketPair(); err != nil {
				return nil, err
			}
		}
	}
	shared := &localMeshes{world: n, made: map[uint32]*localMesh{}}
	groups := make([]*Group, n)
	var h *hub
	for r := range groups {
		cfg.Rank = r
		groups[r] = newGroup(cfg, session, ends, &localFabric{r, shared}, nil)
		if r == 0 {
			h = newHub(groups[0])
		}
		groups[r].coord = h
		groups[r].attach(conns[r])
	}
	for r, g := range groups {
		if r == 0 {
			g.start(h)
		} else {
			g.start(nil)
		}
	}
	return groups, nil
}

func socketPair() (net.Conn, net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "control")
		c, e := net.FileConn(f)
		_ = f.Close() // FileConn has a duplicate
		if e != nil {
			err = e
		}
		ends[i] = c
	}
	return ends[0], ends[1], err
}

// localMeshes are made by whoever comes first and taken by each rank.
type localMeshes struct {
	world int
	mu    sync.Mutex
	made  map[uint32]*localMesh
}

type localMesh struct {
	links [][]transport.Link
	err   error
	taken int
}

type localFabric struct {
	rank int
	all  *localMeshes
}

func (f *localFabric) Mesh(id uint32, bytesPerLink int, _ time.Time) ([]transport.Link, error) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	m := f.all.made[id]
	if m == nil {
		m = &localMesh{links: make([][]transport.Link, f.all.world)}
		for r := range m.links {
			m.links[r] = make([]transport.Link, f.all.world)
		}
		for a := range f.all.world {
			for b := a + 1; b < f.all.world && m.err == nil; b++ {
				// The memory of the pair is both ranks' share.
				m.links[a][b], m.links[b][a], m.err = inproc.NewPair(a, b, 2*bytesPerLink)
			}
		}
		f.all.made[id] = m
	}
	if m.taken++; m.taken == f.all.world {
		delete(f.all.made, id)
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.links[f.rank], nil
}

func (f *localFabric) Close() error { return nil }
