package node

import (
	"errors"
	"sync/atomic"
	"testing"

	"sar/core/transport/foreign"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
)

// fabric is a library that is to be used without being asked for where this host has its device.
type fabric struct{}

const fabricName = "fabric"

var fabricDevice, fabricFails atomic.Bool

func (fabric) Name() string           { return fabricName }
func (fabric) ByteCost() float64      { return 0 }
func (fabric) Revokes() bool          { return false }
func (fabric) Automatic() bool        { return fabricDevice.Load() }
func (fabric) Probe() (string, error) { return "", nil }

func (fabric) Open(int, int) (foreign.Worker, error) {
	if fabricFails.Load() {
		return nil, errors.New("the device is broken")
	}
	return fabricWorker{}, nil
}

type fabricWorker struct{}

func (fabricWorker) Address() []byte                               { return []byte{1} }
func (fabricWorker) Register([]byte) (foreign.Memory, error)       { return nil, nil }
func (fabricWorker) Unregister(foreign.Memory)                     {}
func (fabricWorker) Connect(foreign.Peer) (foreign.Channel, error) { return nil, errors.ErrUnsupported }
func (fabricWorker) Close()                                        {}

func init() {
	if err := foreign.Register(fabric{}); err != nil {
		panic(err)
	}
}

// TestAutomaticLibrary has workers on hosts with and without the library's device: both of a pair choose the
// same, the library where both have it.
func TestAutomaticLibrary(t *testing.T) {
	type host struct {
		asked         string
		device, fails bool
	}
	with, without, broken := host{Auto, true, false}, host{Auto, false, false}, host{Auto, true, true}
	for _, c := range []struct {
		hosts [2]host
		other bool // they are two hosts
		want  string
	}{
		{[2]host{with, with}, true, fabricName},
		{[2]host{with, without}, true, tcp.Transport.Name},
		{[2]host{without, with}, true, tcp.Transport.Name},
		{[2]host{without, without}, true, tcp.Transport.Name},
		{[2]host{with, broken}, true, tcp.Transport.Name},
		{[2]host{with, with}, false, shm.Transport.Name},
		{[2]host{with, {fabricName, false, false}}, true, fabricName},
		{[2]host{with, {tcp.Transport.Name, true, false}}, true, tcp.Transport.Name},
		{[2]host{without, {fabricName, false, false}}, true, tcp.Transport.Name},
	} {
		var nodes [2]*Node
		for r, h := range c.hosts {
			fabricDevice.Store(h.device)
			fabricFails.Store(h.fails)
			n, err := Listen(Config{Rank: r, World: 2, BindAddr: "127.0.0.1", Transport: h.asked,
				Identity: identityOver(r, 2, false)})
			if err != nil {
				t.Fatal(err)
			}
			nodes[r] = n
		}
		for r, n := range nodes {
			peer := nodes[1-r].Endpoint()
			if c.other {
				peer.HostID = "elsewhere"
			}
			list, err := n.reaching(peer)
			switch {
			case c.hosts[r].asked == fabricName && c.want != fabricName:
				if err == nil {
					t.Errorf("%+v: rank %d does not say that the other one lacks what it is told to use", c, r)
				}
			case err != nil || list[0].Name != c.want:
				t.Errorf("%+v: rank %d has %v, %v; want %s", c, r, list, err, c.want)
			}
		}
		for _, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	fabricDevice.Store(false)
}
