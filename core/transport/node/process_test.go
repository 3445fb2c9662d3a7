package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
)

// The test binary is rank 1 of two when this is set, to the transport to use.
const helperEnv = "SAR_TEST_NODE_HELPER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(helperEnv); kind != "" {
		if err := helper(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const helperBytes = 4 << 20

// helper swaps endpoints over its standard streams, joins the mesh and does
// what each frame's Kind asks for.
func helper(kind string) error {
	n, err := Listen(Config{Rank: 1, World: 2, BindAddr: "127.0.0.1", Transport: kind, Identity: identity(1, 2)})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(n.Endpoint()); err != nil {
		return err
	}
	var first transport.Endpoint
	if err := json.NewDecoder(os.Stdin).Decode(&first); err != nil {
		return err
	}
	if err := n.SetPeers([16]byte{7}, []transport.Endpoint{first, n.Endpoint()}); err != nil {
		return err
	}
	links, err := n.Mesh(1, helperBytes, time.Now().Add(patience))
	if err != nil {
		return err
	}
	l := links[0]
	for {
		f, err := l.Next(time.Time{})
		if err != nil {
			var gone *transport.PeerGone
			if errors.As(err, &gone) {
				return nil
			}
			return err
		}
		switch f.Tag.Kind {
		case askEcho:
			p, err := l.Reserve(len(f.Payload), time.Time{})
			if err != nil {
				return err
			}
			copy(p, f.Payload)
			l.Release()
			if err := l.Commit(f.Tag, time.Time{}); err != nil {
				return err
			}
		case askExchange:
			l.Release()
			if err := exchange(l, int(f.Tag.Round), int(f.Tag.Chunk), newWork(f.Tag.Flags == 1)); err != nil {
				return err
			}
		}
	}
}

const (
	askEcho = 1 + iota
	askExchange
)

// process is a helper and this side's link to it.
type process struct {
	cmd  *exec.Cmd
	node *Node
	link transport.Link
}

func startHelper(t testing.TB, kind string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	t.Cleanup(func() {
		if p.link != nil {
			_ = p.link.Close()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if p.node, err = Listen(Config{Rank: 0, World: 2, BindAddr: "127.0.0.1", Transport: kind,
		Identity: identity(0, 2)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.node.Close() })
	if err := json.NewEncoder(in).Encode(p.node.Endpoint()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var second transport.Endpoint
	if err := json.Unmarshal(line, &second); err != nil {
		t.Fatal(err)
	}
	if err := p.node.SetPeers([16]byte{7}, []transport.Endpoint{p.node.Endpoint(), second}); err != nil {
		t.Fatal(err)
	}
	links, err := p.node.Mesh(1, helperBytes, time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	p.link = links[1]
	if p.link.Properties().Kind != kind {
		t.Fatalf("the link is %s", p.link.Properties().Kind)
	}
	return p
}

func (p *process) ask(kind uint8, payload string) error {
	deadline := time.Now().Add(patience)
	b, err := p.link.Reserve(len(payload), deadline)
	if err != nil {
		return err
	}
	copy(b, payload)
	return p.link.Commit(transport.Tag{Kind: kind}, deadline)
}

func TestProcessKilled(t *testing.T) {
	for _, kind := range []string{shm.Transport.Name, tcp.Transport.Name} {
		t.Run(kind, func(t *testing.T) {
			p := startHelper(t, kind)
			for _, what := range []string{"one", "two"} {
				if err := p.ask(askEcho, what); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			segments := countSegments(t)
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_, _ = p.cmd.Process.Wait()
			start := time.Now()
			// What it had sent is still read.
			for _, what := range []string{"one", "two"} {
				f, err := p.link.Next(time.Now().Add(patience))
				if err != nil || string(f.Payload) != what {
					t.Fatalf("frame %q, %v", f.Payload, err)
				}
				p.link.Release()
			}
			_, err := p.link.Next(time.Now().Add(patience))
			var gone *transport.PeerGone
			if !errors.As(err, &gone) || gone.Peer != 1 {
				t.Fatalf("got %v", err)
			}
			for err = nil; err == nil; {
				err = p.ask(askEcho, "three")
			}
			if !errors.As(err, &gone) {
				t.Fatalf("sending: %v", err)
			}
			if d := time.Since(start); d > 200*time.Millisecond {
				t.Errorf("noticed after %v", d)
			}
			_ = p.link.Close()
			if now := countSegments(t); kind == shm.Transport.Name && (segments != 1 || now != 0) {
				t.Errorf("%d segments mapped before the end, %d after", segments, now)
			}
			if left, _ := filepath.Glob("/dev/shm/*sar*"); len(left) > 0 {
				t.Errorf("left in /dev/shm: %v", left)
			}
		})
	}
}

func countSegments(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:sar-link")
}

// TestProcessStopped: a stopped process is silent, not gone, and goes on later.
func TestProcessStopped(t *testing.T) {
	for _, kind := range []string{shm.Transport.Name, tcp.Transport.Name} {
		t.Run(kind, func(t *testing.T) {
			p := startHelper(t, kind)
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			var status syscall.WaitStatus
			if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
				t.Fatalf("not stopped: %v, %v", status, err)
			}
			if err := p.ask(askEcho, "wake up"); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err := p.link.Next(start.Add(100 * time.Millisecond))
			var late *transport.TimeoutError
			if !errors.As(err, &late) || time.Since(start) > 300*time.Millisecond {
				t.Fatalf("got %v after %v", err, time.Since(start))
			}
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			f, err := p.link.Next(time.Now().Add(patience))
			if err != nil || string(f.Payload) != "wake up" {
				t.Fatalf("frame %q, %v", f.Payload, err)
			}
		})
	}
}
