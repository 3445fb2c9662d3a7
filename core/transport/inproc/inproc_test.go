package inproc_test

import (
	"testing"

	"sar/core/transport"
	"sar/core/transport/conformance"
	"sar/core/transport/inproc"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, "inproc", func(_ testing.TB, size, linkBytes int) [][]transport.Link {
		return inproc.NewMesh(size, linkBytes)
	})
}
