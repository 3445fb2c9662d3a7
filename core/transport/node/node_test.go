package node

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/trust"
)

const patience = 10 * time.Second

// identity is that of a rank of one job.
func identity(rank, world int) *trust.Identity { return identityOver(rank, world, false) }

func identityOver(rank, world int, encrypted bool) *trust.Identity {
	job, err := trust.NewJob("the token of all jobs of these tests")
	if err != nil {
		panic(err)
	}
	id, err := trust.NewIdentity(job, rank, world, encrypted)
	if err != nil {
		panic(err)
	}
	return id
}

// open makes nodes that know each other, within this process.
func open(t testing.TB, transports ...string) []*Node {
	t.Helper()
	return openOver(t, false, transports...)
}

// openOver is open with or without TLS.
func openOver(t testing.TB, encrypted bool, transports ...string) []*Node {
	t.Helper()
	var nodes []*Node
	var ends []transport.Endpoint
	for r, kind := range transports {
		n, err := Listen(Config{Rank: r, World: len(transports), BindAddr: "127.0.0.1", Transport: kind, Identity: identityOver(r, len(transports), encrypted)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
		ends = append(ends, n.Endpoint())
	}
	for _, n := range nodes {
		if err := n.SetPeers([16]byte{1, 2, 3}, ends); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func repeat(kind string, n int) []string {
	return strings.Split(strings.TrimSuffix(strings.Repeat(kind+" ", n), " "), " ")
}

// mesh calls Mesh on all nodes at once.
func mesh(nodes []*Node, id uint32, bytes int, wait time.Duration) ([][]transport.Link, []error) {
	links := make([][]transport.Link, len(nodes))
	errs := make([]error, len(nodes))
	done := make(chan struct{})
	for r, n := range nodes {
		go func() {
			links[r], errs[r] = n.Mesh(id, bytes, time.Now().Add(wait))
			done <- struct{}{}
		}()
	}
	for range nodes {
		<-done
	}
	return links, errs
}

func mustMesh(t testing.TB, nodes []*Node, id uint32, bytes int) [][]transport.Link {
	t.Helper()
	links, errs := mesh(nodes, id, bytes, patience)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return links
}

func closeLinks(links [][]transport.Link) {
	for _, row := range links {
		for _, l := range row {
			if l != nil {
				_ = l.Close()
			}
		}
	}
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		encrypted  bool
	}{{"shm", Shm, false}, {"tcp", TCP, false}, {"tls", TCP, true}} {
		t.Run(c.name, func(t *testing.T) {
			conformance.Run(t, c.kind, func(t testing.TB, size, linkBytes int) [][]transport.Link {
				nodes := openOver(t, c.encrypted, repeat(c.kind, size)...)
				links := mustMesh(t, nodes, 1, linkBytes)
				for _, n := range nodes { // links live on
					if err := n.Close(); err != nil {
						t.Error(err)
					}
				}
				return links
			})
		})
	}
}

func TestAutoChooses(t *testing.T) {
	nodes := open(t, Auto, TCP, Auto, "")
	links := mustMesh(t, nodes, 1, 1<<16)
	defer closeLinks(links)
	for a, row := range links {
		for b, l := range row {
			want := Shm
			if a == 1 || b == 1 { // a node told to use tcp brings its peers to it
				want = TCP
			}
			if l != nil && l.Kind() != want {
				t.Errorf("link %d-%d is %s, want %s", a, b, l.Kind(), want)
			}
		}
	}
}

// TestOtherHost has endpoints claim another host.
func TestOtherHost(t *testing.T) {
	for _, kind := range []string{Auto, Shm} {
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
			if links[0][1].Kind() != TCP || links[1][0].Kind() != TCP {
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
	if k := links[0][1].Kind(); k != TCP {
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

func control(t *testing.T, nodes []*Node) [][]net.Conn {
	t.Helper()
	conns := make([][]net.Conn, len(nodes))
	errs := make(chan error)
	for r, n := range nodes {
		go func() {
			var err error
			conns[r], err = n.Control(time.Now().Add(patience))
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return conns
}

func TestControl(t *testing.T) {
	for _, kind := range []string{Auto, TCP} {
		nodes := open(t, repeat(kind, 3)...)
		for range 2 {
			conns := control(t, nodes)
			for a, row := range conns {
				for b, c := range row {
					if (c == nil) != (a == b) {
						t.Fatalf("connection %d-%d: %v", a, b, c)
					}
					if c != nil {
						if _, err := c.Write([]byte{byte(10*a + b)}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for a, row := range conns {
				for b, c := range row {
					if c == nil {
						continue
					}
					var got [1]byte
					if _, err := c.Read(got[:]); err != nil || int(got[0]) != 10*b+a {
						t.Fatalf("connection %d-%d carried %d, %v", a, b, got[0], err)
					}
					_ = c.Close()
				}
			}
		}
	}
}

// TestParked has one rank come late to two meshes, in the other order.
func TestParked(t *testing.T) {
	nodes := open(t, Auto, Auto)
	type result struct {
		id    uint32
		links []transport.Link
		err   error
	}
	early := make(chan result, 2)
	for _, id := range []uint32{1, 2} {
		go func() {
			l, err := nodes[1].Mesh(id, 1<<16, time.Now().Add(patience))
			early <- result{id, l, err}
		}()
	}
	time.Sleep(50 * time.Millisecond)
	late := map[uint32]transport.Link{}
	for _, id := range []uint32{2, 1} {
		l, err := nodes[0].Mesh(id, 1<<16, time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		late[id] = l[1]
		defer closeLinks([][]transport.Link{l})
	}
	for range 2 {
		r := <-early
		if r.err != nil {
			t.Fatal(r.err)
		}
		defer closeLinks([][]transport.Link{r.links})
		if _, err := r.links[0].Reserve(0, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := r.links[0].Commit(transport.Tag{Comm: uint16(r.id)}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		f, err := late[r.id].Next(time.Now().Add(patience))
		if err != nil || f.Tag.Comm != uint16(r.id) {
			t.Fatalf("mesh %d carried %+v, %v", r.id, f.Tag, err)
		}
	}
}

func TestLateAndClosed(t *testing.T) {
	nodes := open(t, Auto, Auto)
	for r, n := range nodes {
		start := time.Now()
		_, err := n.Mesh(1, 1<<16, start.Add(50*time.Millisecond))
		var late *transport.TimeoutError
		if !errors.As(err, &late) || late.Peer != 1-r || time.Since(start) > time.Second {
			t.Errorf("rank %d alone: %v after %v", r, err, time.Since(start))
		}
	}
	// What the first attempts left behind does not spoil another.
	closeLinks(mustMesh(t, nodes, 2, 1<<16))
	errs := make(chan error)
	go func() {
		_, err := nodes[0].Mesh(3, 1<<16, time.Time{})
		errs <- err
	}()
	time.Sleep(20 * time.Millisecond)
	_ = nodes[0].Close()
	if err := <-errs; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Mesh on a closed node: %v", err)
	}
	_, err := nodes[1].Mesh(4, 1<<16, time.Now().Add(patience))
	var gone *transport.PeerGone
	if !errors.As(err, &gone) {
		t.Errorf("Mesh with a closed peer: %v", err)
	}
}

func TestDisagreement(t *testing.T) {
	nodes := open(t, Auto, Auto)
	errs := make(chan error)
	for r, n := range nodes {
		go func() {
			_, err := n.Mesh(1, (r+1)<<16, time.Now().Add(patience))
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "65536") || !strings.Contains(err.Error(), "131072") {
			t.Errorf("got %v, want both sizes", err)
		}
	}
	nodes = open(t, Shm, TCP)
	_, both := mesh(nodes, 1, 1<<16, patience)
	for _, err := range both {
		if err == nil {
			t.Error("shm on one side and tcp on the other went through")
		}
	}
}

func TestListenConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Rank: 2, World: 2}, "rank 2"},
		{Config{World: 1, Transport: "carrier pigeon"}, "carrier pigeon"},
		{Config{World: 1, Interface: "nosuch0"}, "lo (127.0.0.1)"},
		{Config{World: 1, BindAddr: "203.0.113.1"}, "203.0.113.1"},
		{Config{World: 1, Advertise: "host:port"}, "host:port"},
	} {
		c.cfg.Identity = identity(0, 1)
		if n, err := Listen(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
			if n != nil {
				_ = n.Close()
			}
		}
	}
	for _, c := range []struct {
		cfg  Config
		host string
	}{
		{Config{World: 1, Interface: "lo"}, "127.0.0.1"},
		{Config{World: 1, Interface: "lo", Advertise: "proxy:77"}, "proxy:77"},
		{Config{World: 1, BindAddr: "127.0.0.1", Advertise: "proxy"}, "proxy"},
	} {
		c.cfg.Identity = identity(0, 1)
		n, err := Listen(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Endpoint().TCP; !strings.HasPrefix(got, c.host) || strings.HasSuffix(got, ":0") {
			t.Errorf("%+v is at %s", c.cfg, got)
		}
		_ = n.Close()
	}
	if a, err := RouteTo("127.0.0.1:9"); err != nil || a != "127.0.0.1" {
		t.Errorf("route to the loopback leaves from %s, %v", a, err)
	}
}

// TestNothingLeft counts what nodes, meshes and refused connections leave.
func TestNothingLeft(t *testing.T) {
	count := func() (int, int, int64) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(fds), mem.Stats()[mem.Window].Live
	}
	g0, f0, m0 := count()
	t.Run("use", func(t *testing.T) {
		TestAutoChooses(t)
		TestLateAndClosed(t)
		TestDisagreement(t)
		TestStrangers(t)
		TestOddHellos(t)
	})
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		g, f, m := count()
		if g <= g0 && f <= f0 && m == m0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d descriptors, %d bytes; before %d, %d, %d", g, f, m, g0, f0, m0)
		}
	}
}
