package comm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sar/core/internal/dtypes"
	"sar/core/internal/freeport"
	"sar/core/transport"
	"sar/core/transport/node"
	"sar/core/trust"
)

// joinAll joins with each config at once, sockets and all, and runs f where
// joining worked.
func joinAll(t *testing.T, cfgs []Config, f func(g *Group) error) []error {
	t.Helper()
	return joinBy(t, cfgs, Join, f)
}

func joinBy(t *testing.T, cfgs []Config, join func(Config) (*Group, error), f func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, len(cfgs))
	groups := make([]*Group, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() {
			if groups[i], errs[i] = join(cfg); errs[i] == nil && f != nil {
				errs[i] = f(groups[i])
			}
		})
	}
	wg.Wait()
	for _, g := range groups {
		if g != nil {
			if err := g.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
	return errs
}

const testToken = "the token of all jobs of these tests"

func configs(port, world int, change func(c *Config)) []Config {
	cfgs := make([]Config, world)
	for r := range cfgs {
		cfgs[r] = Config{Rank: r, World: world, MasterAddr: "127.0.0.1", MasterPort: port, Start: 20 * time.Second,
			JobToken: testToken}
		if change != nil {
			change(&cfgs[r])
		}
	}
	return cfgs
}

// Ranks of one process tell each other no signs of life.
func TestRanksOfOneProcess(t *testing.T) {
	noErrors(t, joinAll(t, configs(freeport.Find(), 2, nil), func(g *Group) error {
		if peer := g.peers[1-g.Rank()]; !peer.inside {
			return fmt.Errorf("the peer at %s is not known to be in this process", peer.TCP)
		}
		return nil
	}))
	listening.Range(func(address, _ any) bool {
		t.Errorf("%s is listed still", address)
		return true
	})
}

func TestJoinOverTheNetwork(t *testing.T) {
	for _, name := range []string{"tcp", "shm", "tls"} {
		for _, p := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/P%d", name, p), func(t *testing.T) {
				transport := strings.Replace(name, "tls", "tcp", 1)
				cfgs := configs(freeport.Find(), p, func(c *Config) { c.Transport, c.TLS = transport, name == "tls" })
				noErrors(t, joinAll(t, cfgs, func(g *Group) error {
					c, err := g.NewCommunicator("net", 1<<20)
					if err != nil {
						return err
					}
					for _, n := range []int{3, 50_000} {
						if err := checkAllReduce(c, dtypes.Float32, Sum, n); err != nil {
							return err
						}
					}
					if err := c.Resize(1 << 19); err != nil {
						return err
					}
					for _, peer := range g.Stats().Peers {
						if peer.Transport != name {
							return fmt.Errorf("link to %d is %s", peer.Rank, peer.Transport)
						}
					}
					return checkAllReduce(c, dtypes.Float64, Avg, 20_000)
				}))
				nothingLeft(t)
			})
		}
	}
}

// left is the stacks of goroutines of this package and of gorpc.
func left() []string {
	buf := make([]byte, 1<<20)
	var out []string
	for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(s, "comm.(*Group)") || strings.Contains(s, "comm.(*client)") ||
			strings.Contains(s, "comm.(*server)") || strings.Contains(s, "gorpc.") {
			out = append(out, s)
		}
	}
	return out
}

// nothingLeft waits a little until no goroutine is left behind.
func nothingLeft(t *testing.T) {
	t.Helper()
	var stacks []string
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if stacks = left(); len(stacks) == 0 {
			return
		}
	}
	t.Errorf("%d goroutines are left behind:\n%s", len(stacks), strings.Join(stacks, "\n\n"))
}

// every wants the same *RendezvousError from every rank, with these words.
func every(t *testing.T, errs []error, words ...string) {
	t.Helper()
	for i, err := range errs {
		var e *RendezvousError
		if !errors.As(err, &e) {
			t.Errorf("worker %d: %T %v", i, err, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("worker %d: %q is not in: %v", i, w, err)
			}
		}
	}
}

// alone lets bad join while rank 0 waits: it is refused, and the others meet as
// if it had never been.
func alone(t *testing.T, cfgs []Config, bad Config, words ...string) {
	t.Helper()
	bad.MasterAddr, bad.MasterPort, bad.Start, bad.JobToken = cfgs[0].MasterAddr, cfgs[0].MasterPort, 10*time.Second,
		testToken
	last := len(cfgs) - 1
	early := make(chan []error)
	go func() { early <- joinAll(t, cfgs[:last], nil) }()
	time.Sleep(300 * time.Millisecond)
	_, err := Join(bad)
	every(t, []error{err}, words...)
	noErrors(t, joinAll(t, cfgs[last:], nil))
	noErrors(t, <-early)
}

func TestRendezvousErrors(t *testing.T) {
	t.Run("two workers with one rank", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 3, nil)
		alone(t, cfgs, Config{Rank: 1, World: 3}, "two workers have rank 1", "process", " on ")
	})
	t.Run("two workers with one rank, one of them late", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 2, nil)
		begin := time.Now()
		met, over := make(chan struct{}, 2), make(chan struct{})
		late := make(chan error)
		go func() {
			<-met
			<-met
			_, err := Join(cfgs[1])
			close(over)
			late <- err
		}()
		noErrors(t, joinAll(t, cfgs, func(*Group) error {
			met <- struct{}{}
			<-over
			return nil
		}))
		every(t, []error{<-late}, "two workers have rank 1", "a rank of its own")
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("world sizes that differ", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 3, nil)
		alone(t, cfgs, Config{Rank: 1, World: 4}, "rank 1", "world size of 4", "rank 0 with 3")
		alone(t, configs(freeport.Find(), 3, nil), Config{Rank: 3, World: 4}, "rank 3", "world size of 4", "rank 0 with 3")
	})
	t.Run("who was turned away is what all others hear of", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 3, func(c *Config) { c.Start = time.Second })
		cfgs[2].World = 4
		errs := joinAll(t, cfgs, nil)
		every(t, errs[:2], "rank 2 of 3 did not come", "turned away: rank 2", "world size of 4")
		every(t, errs[2:], "world size of 4", "rank 0 with 3")
	})
	t.Run("TLS on one side", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 2, nil)
		cfgs[1].TLS = true
		cfgs[0].Start = time.Second
		every(t, joinAll(t, cfgs, nil)[1:], "rank 1 was refused", "without TLS and this rank with", "SAR_TLS")
	})
	t.Run("another job", func(t *testing.T) {
		port := freeport.Find()
		first := configs(port, 2, nil)
		second := configs(port, 2, func(c *Config) { c.JobToken += ", but one"; c.Start = 10 * time.Second })
		early := make(chan []error)
		go func() { early <- joinAll(t, first[:1], nil) }()
		time.Sleep(200 * time.Millisecond)
		begin := time.Now()
		errs := joinAll(t, second, nil)
		every(t, errs[:1], fmt.Sprintf("port %d", port), "belongs to another job of SAR", "another master port")
		every(t, errs[1:], "belongs to another job", "SAR_JOB_TOKEN")
		if d := time.Since(begin); d > 8*time.Second {
			t.Errorf("took %v", d)
		}
		noErrors(t, joinAll(t, first[1:], nil))
		noErrors(t, <-early)
	})
	t.Run("rank out of range", func(t *testing.T) {
		_, err := Join(Config{Rank: 2, World: 2})
		every(t, []error{err}, "rank 2 with world size 2")
	})
	t.Run("missing ranks", func(t *testing.T) {
		cfgs := configs(freeport.Find(), 4, func(c *Config) { c.Start = time.Second })
		every(t, joinAll(t, []Config{cfgs[0], cfgs[2]}, nil), "ranks 1, 3 of 4", "within 1 s")
	})
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		_, err = Join(configs(port, 2, nil)[0])
		every(t, []error{err}, fmt.Sprintf("port %d", port), "in use", "another master port")
	})
	t.Run("unreachable master", func(t *testing.T) {
		port := freeport.Find()
		begin := time.Now()
		_, err := Join(configs(port, 2, func(c *Config) { c.Start = 500 * time.Millisecond })[1])
		every(t, []error{err}, fmt.Sprintf("127.0.0.1:%d", port), "0.5 s", "refused")
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("something else answers", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "220 mail.example.org ESMTP")
			}
		}()
		_, err = Join(configs(l.Addr().(*net.TCPAddr).Port, 2, nil)[1])
		every(t, []error{err}, "is not a SAR worker", "choose another")
	})
	nothingLeft(t)
	t.Run("another version", func(t *testing.T) {
		cfg := configs(freeport.Find(), 2, nil)[0]
		cfg.Start = time.Second
		m := openMaster(t, cfg)
		c := connect(fmt.Sprintf("127.0.0.1:%d", cfg.MasterPort), identity(t, cfg, 1), time.Second)
		defer c.stop()
		_, err := c.meetMaster(cfg, joinRequest{Version: protocol + 1, Rank: 1, World: 2}, time.Now().Add(5*time.Second))
		_, err0 := m.wait(cfg)
		every(t, []error{err, err0}, fmt.Sprintf("version %d", protocol+1), fmt.Sprintf("rank 0 version %d", protocol))
	})
}

// identity is that of a rank of cfg's job.
func identity(t *testing.T, cfg Config, rank int) *trust.Identity {
	t.Helper()
	job, err := trust.NewJob(cfg.JobToken)
	if err != nil {
		t.Fatal(err)
	}
	id, err := trust.NewIdentity(job, rank, cfg.World, cfg.TLS)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// openMaster opens the rendezvous of rank 0 alone.
func openMaster(t *testing.T, cfg Config) *master {
	t.Helper()
	at, id, err := prepare(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n, m, err := listen(cfg, at, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.server.stop()
		_ = n.Close()
	})
	if err := m.begin(n, joinRequest{Version: protocol, World: cfg.World, Endpoint: n.Endpoint()}); err != nil {
		t.Fatal(err)
	}
	return m
}

// Whatever knocks at the rendezvous does not disturb it.
func TestStrangersAtTheRendezvous(t *testing.T) {
	cfgs := configs(freeport.Find(), 2, nil)
	knocked := make(chan struct{})
	go func() {
		defer close(knocked)
		addr := fmt.Sprintf("127.0.0.1:%d", cfgs[0].MasterPort)
		for range 20 {
			if c, err := net.Dial("tcp", addr); err == nil {
				_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
				_ = c.Close()
			}
			if c, err := net.Dial("tcp", addr); err == nil { // begins as a worker does
				_, _ = io.WriteString(c, "SARP\x01\x04\x00\xf8\x10\x00\x00\x00\x00\x00\x00\x00garbage")
				_ = c.Close()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	late := make(chan []error)
	go func() { late <- joinAll(t, cfgs[:1], nil) }()
	time.Sleep(200 * time.Millisecond)
	noErrors(t, joinAll(t, cfgs[1:], nil))
	noErrors(t, <-late)
	<-knocked
}

// Two workers of a host need two ports: the rendezvous is at that of rank 0's links.
func TestTwoPortsForTwoWorkers(t *testing.T) {
	first := freeport.Find()
	cfgs := configs(first, 2, func(c *Config) { c.Transport, c.Ports = "tcp", node.Ports{First: first, Last: first + 1} })
	noErrors(t, joinAll(t, cfgs, func(g *Group) error {
		if at, want := g.self.TCP, fmt.Sprintf("127.0.0.1:%d", first+g.Rank()); at != want {
			return fmt.Errorf("rank %d listens at %s, not at %s", g.Rank(), at, want)
		}
		c, err := g.NewCommunicator("c", 1<<20)
		if err != nil {
			return err
		}
		return c.Barrier()
	}))
	cfgs[1].Ports.Last = first
	cfgs = cfgs[1:]
	if _, err := Join(cfgs[0]); err == nil || !strings.Contains(err.Error(), "SAR_PORT_RANGE") {
		t.Errorf("a range with rank 0's port alone: %v", err)
	}
}

// TestGiveUp has rank 2 fail to reach rank 1 when rank 0 has begun already.
func TestGiveUp(t *testing.T) {
	g := newGroup(Config{Rank: 0, World: 3}, make([]transport.Endpoint, 3), nil)
	here, there := net.Pipe()
	g.attach([]net.Conn{nil, nil, here})
	giveUp([]net.Conn{there, nil, nil}, &RendezvousError{"rank 2 cannot connect to rank 1"}, "c", 2)
	<-g.Failed()
	var remote *RemoteError
	if err := g.Failure(); !errors.As(err, &remote) || remote.Rank != 2 || !strings.Contains(err.Error(), "to rank 1") {
		t.Errorf("%v", err)
	}
	_ = g.Close()
}
