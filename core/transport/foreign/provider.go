// Package foreign has the frames of links carried by a network library. A Provider is what
// it takes of the library: messages between two workers, posted and completed later. All else
// of a link is made here: its place in a mesh, the proof of who is at the other end, room at
// the receiver, deadlines, and the end of a peer.
//
// A pair of workers has a TCP connection of its own beside the library's. Over it the two
// tell each other how the library reaches them, and its end is that of the peer: kernels see
// to that also where a process could not, and libraries mostly do not.
package foreign

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// Provider is a network library. Its functions may be called by any goroutine.
type Provider interface {
	// Name is what users ask for.
	Name() string
	// ByteCost is what a byte takes, as Properties tell it; 0: as over TCP.
	ByteCost() float64
	// Revokes says that after Disconnect every request is complete within a second, whatever
	// the peer does, and that no receive succeeds whose send did not. Links are then Direct.
	Revokes() bool
	// Automatic says whether it is to be chosen without being asked for. Every session that may
	// choose asks, so the answer has to be quick.
	Automatic() bool
	// Probe says in words what the library would use here, or why it cannot be used.
	Probe() (uses string, err error)
	// Open prepares it for one rank.
	Open(rank, world int) (Worker, error)
}

// Worker is what one rank has of a library.
type Worker interface {
	// Address is how the library reaches this worker from peers, MaxAddress bytes at most.
	Address() []byte
	// Register makes memory outside of the Go heap ready for the network.
	Register(b []byte) (Memory, error)
	Unregister(m Memory)
	// Connect makes a channel, which may come about later.
	Connect(p Peer) (Channel, error)
	// Close ends the worker. Everything else has ended before.
	Close()
}

// Memory is what a library knows registered memory by; nil is of memory that is not.
type Memory any

// Peer is the other end of a channel to be.
type Peer struct {
	Rank    int
	Address []byte
	// Tags for the library's messages. No other channel that this process has made receives
	// with this one, and no channel of the peer's process sends to us with another.
	SendTag, ReceiveTag uint32
}

// Channel carries messages to and from one peer, each way in order: the k-th that one side
// sends fills the k-th that the other receives, which has its size, 1 byte to 1 GiB. At most
// MaxPosted are outstanding each way.
type Channel interface {
	// Send and Receive return at once and have the request's Done called later, or before.
	Send(b []byte, m Memory, r *Request)
	Receive(b []byte, m Memory, r *Request)
	// Disconnect ends all requests, by Done, at once or later. It is the last call.
	Disconnect()
}

// Bounds of what a library says and is given.
const (
	MaxAddress = 4096
	MaxPosted  = 256
)

var (
	registry  sync.Mutex
	providers []Provider
)

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,14}$`)

// taken are names that mean something else already.
var taken = []string{"auto", "shm", "tcp", "tls", "inproc"}

// Register makes a library known under its name, for as long as the process lives.
func Register(p Provider) error {
	name := p.Name()
	if !nameForm.MatchString(name) {
		return fmt.Errorf("transport name %q: 1 to 15 of a-z, 0-9 and _ are needed, first a letter", name)
	}
	registry.Lock()
	defer registry.Unlock()
	if slices.Contains(taken, name) || slices.ContainsFunc(providers, func(q Provider) bool { return q.Name() == name }) {
		return fmt.Errorf("there is a transport %q already: register another name, and each once in a process", name)
	}
	providers = append(providers, p)
	return nil
}

// Registered are the libraries that are known, in the order of their registration.
func Registered() []Provider {
	registry.Lock()
	defer registry.Unlock()
	return slices.Clone(providers)
}

// Find returns the library of a name, nil where there is none.
func Find(name string) Provider {
	for _, p := range Registered() {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// Automatic is the first library that is to be chosen without being asked for, or nil.
func Automatic() Provider {
	for _, p := range Registered() {
		if p.Automatic() {
			return p
		}
	}
	return nil
}
