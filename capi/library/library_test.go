package library_test

import (
	"errors"
	"os"
	"testing"

	table "sar/capi/foreign"
	"sar/capi/library"
	"sar/core/transport/conformance"
	"sar/core/transport/foreign"
)

func TestMain(m *testing.M) {
	if err := errors.Join(table.Register(library.UCX()), table.Register(library.MPI())); err != nil {
		panic(err)
	}
	code := m.Run()
	library.End()
	os.Exit(code)
}

// TestConformance runs over what is installed. MPI is one rank, which sends to itself.
func TestConformance(t *testing.T) {
	for _, name := range []string{"ucx", "mpi"} {
		t.Run(name, func(t *testing.T) {
			p := foreign.Find(name)
			uses, err := p.Probe()
			if err != nil {
				t.Skip(err)
			}
			t.Log(uses)
			conformance.Run(t, name, conformance.Over(p))
			if p.Revokes() {
				t.Run("Direct", func(t *testing.T) { conformance.RunDirect(t, conformance.Over(p)) })
			}
		})
	}
}

func TestFurther(t *testing.T) {
	for name, known := range map[string]bool{"ucx": true, "mpi": true, "tcp": false, "": false} {
		if library.Further(name, "/nowhere/lib.so") != known {
			t.Errorf("Further(%q) is not %v", name, known)
		}
	}
}

// TestStrangeAddress connects to what is no address of the library's.
func TestStrangeAddress(t *testing.T) {
	for _, name := range []string{"ucx", "mpi"} {
		p := foreign.Find(name)
		if _, err := p.Probe(); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		w, err := p.Open(0, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{"abc", "a string of 20 bytes"} {
			if name == "ucx" && len(address) > 4 {
				continue // UCX believes what begins as an address does
			}
			if c, err := w.Connect(foreign.Peer{Rank: 1, Address: []byte(address), SendTag: 1 << 20,
				ReceiveTag: 1 << 20}); err == nil || c != nil {
				t.Errorf("%s connected to %q", name, address)
			}
		}
		w.Close()
	}
}
