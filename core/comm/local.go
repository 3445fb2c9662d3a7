package comm

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"sar/core/transport"
	"sar/core/transport/inproc"
)

// Local makes the groups of cfg.World ranks that live in this process and are
// joined by inproc links: everything a Group does, without a network. For tests
// and for trying things. cfg.Rank and the address of the master are not used.
func Local(cfg Config) ([]*Group, error) {
	return LocalOver(cfg, func(a, b, linkBytes int) (transport.Link, transport.Link, error) {
		return inproc.NewPair(a, b, 2*linkBytes) // the memory of the pair is both ranks' share
	})
}

// Joiner makes links between two ranks: a's end and b's end, each with linkBytes
// of memory.
type Joiner func(a, b, linkBytes int) (la, lb transport.Link, err error)

// LocalOver is Local with links of the caller's. Nothing of it is the operating
// system's, so that it runs under the clock of testing/synctest.
func LocalOver(cfg Config, join Joiner) ([]*Group, error) {
	cfg = cfg.withDefaults()
	n := cfg.World
	ends := make([]transport.Endpoint, n)
	conns := make([][]net.Conn, n)
	for r := range ends {
		ends[r] = transport.Endpoint{Rank: r, Host: fmt.Sprintf("local-%d", r), PID: os.Getpid()}
		conns[r] = make([]net.Conn, n)
	}
	for a := range n {
		for b := a + 1; b < n; b++ {
			if cfg.Rank = a; cfg.controls(b) {
				conns[a][b], conns[b][a] = net.Pipe()
			}
		}
	}
	shared := &localMeshes{world: n, join: join, made: map[uint32]*localMesh{}}
	groups := make([]*Group, n)
	for r := range groups {
		cfg.Rank = r
		groups[r] = newGroup(cfg, ends, &localFabric{r, shared})
		groups[r].attach(conns[r])
	}
	for _, g := range groups {
		g.start()
	}
	return groups, nil
}

// localMeshes are made by whoever comes first and taken by each rank.
type localMeshes struct {
	world int
	join  Joiner
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
				m.links[a][b], m.links[b][a], m.err = f.all.join(a, b, bytesPerLink)
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
