package inproc_test

import (
	"testing"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/inproc"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, "inproc", conformance.Pairs(func(t testing.TB, a, b, linkBytes int) (la, lb transport.Link) {
		la, lb, err := inproc.NewPair(a, b, linkBytes)
		if err != nil {
			t.Fatal(err)
		}
		return la, lb
	}))
}
