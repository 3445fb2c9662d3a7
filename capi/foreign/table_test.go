package foreign_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	table "sar/capi/foreign"
	"sar/capi/foreign/foreigntest"
	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/node"
	"sar/core/trust"
)

func init() {
	if err := table.Register(foreigntest.Sockets()); err != nil {
		panic(err)
	}
}

// open makes nodes of one job within this process, by the names of their transports.
func open(t testing.TB, names ...string) []*node.Node {
	t.Helper()
	job, err := trust.NewJob("the token of all jobs of these tests")
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*node.Node
	var ends []transport.Endpoint
	for r, name := range names {
		id, err := trust.NewIdentity(job, r, len(names), false)
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.Listen(node.Config{Rank: r, World: len(names), BindAddr: "127.0.0.1", Transport: name, Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		nodes, ends = append(nodes, n), append(ends, n.Endpoint())
	}
	for _, n := range nodes {
		if err := n.SetPeers([16]byte{4, 5, 6}, ends); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func mesh(nodes []*node.Node, linkBytes int, wait time.Duration) ([][]transport.Link, []error) {
	links, errs := make([][]transport.Link, len(nodes)), make([]error, len(nodes))
	done := make(chan struct{})
	for r, n := range nodes {
		go func() {
			links[r], errs[r] = n.Mesh(1, linkBytes, time.Now().Add(wait))
			done <- struct{}{}
		}()
	}
	for range nodes {
		<-done
	}
	return links, errs
}

func repeat(name string, n int) []string { return strings.Fields(strings.Repeat(name+" ", n)) }

// TestConformance runs the suite over a C library, from the proof on.
func TestConformance(t *testing.T) {
	make := func(t testing.TB, size, linkBytes int) [][]transport.Link {
		nodes := open(t, repeat("sockets", size)...)
		links, errs := mesh(nodes, linkBytes, 20*time.Second)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes { // links live on
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return links
	}
	conformance.Run(t, "sockets", make)
	t.Run("Direct", func(t *testing.T) { conformance.RunDirect(t, make) })
}

// TestNotEverywhere has one worker use another transport: both say so, and none waits.
func TestNotEverywhere(t *testing.T) {
	nodes := open(t, "sockets", "tcp")
	start := time.Now()
	_, errs := mesh(nodes, 1<<16, 2*time.Second)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "SAR_TRANSPORT=sockets") ||
		!strings.Contains(errs[0].Error(), "rank 1") {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[1] == nil || time.Since(start) > 10*time.Second {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// TestTLS: what a library carries is not encrypted.
func TestTLS(t *testing.T) {
	job, err := trust.NewJob("the token of all jobs of these tests")
	if err != nil {
		t.Fatal(err)
	}
	id, err := trust.NewIdentity(job, 0, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.Listen(node.Config{World: 2, BindAddr: "127.0.0.1", Transport: "sockets", Identity: id})
	if err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a library under TLS: %v", err)
	}
}

func TestBadTables(t *testing.T) {
	good := unsafe.Slice((*byte)(foreigntest.Sockets()),
		binary.NativeEndian.Uint64(unsafe.Slice((*byte)(foreigntest.Sockets()), 8)))
	const nameAt, flagsAt, costAt, openAt = 8, 24, 32, 48
	for _, c := range []struct {
		what, want string
		damage     func(b []byte)
	}{
		{"no size", "size", func(b []byte) { clear(b[:8]) }},
		{"no name", "name", func(b []byte) { clear(b[nameAt : nameAt+8]) }},
		{"unknown flags", "flags", func(b []byte) { b[flagsAt] = 0x80 }},
		{"a cost that is no number", "byte_cost", func(b []byte) { binary.NativeEndian.PutUint64(b[costAt:], 0x7ff8<<48) }},
		{"no open", "open", func(b []byte) { clear(b[openAt : openAt+8]) }},
		{"registered before", "already", func([]byte) {}},
	} {
		bad := append([]byte(nil), good...)
		c.damage(bad)
		if err := table.Register(unsafe.Pointer(&bad[0])); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := table.Register(nil); err == nil {
		t.Error("NULL was registered")
	}
}
