package comm

import (
	"time"

	"sar/core/transport/node"
)

// Config describes this worker and where to meet the others. Zero durations
// mean the defaults.
type Config struct {
	Rank, World int
	MasterAddr  string // where rank 0 listens; ignored where World is 1
	MasterPort  int
	Interface   string        // network interface whose address peers use; "": the route to the master
	Transport   string        // "shm", "tcp", or "" and "auto": shm on one host, else tcp
	Advertise   string        // host:port that peers connect to in place of the listener's own
	Ports       node.Ports    // where this rank listens, rank 0 apart; zero: at any port
	Start       time.Duration // for everyone to arrive
	Liveness    time.Duration // a worker unheard of for so long is lost
	Operation   time.Duration // for any one operation
	JobToken    string        // secret of the job; "": of this user, where the job does not leave this host
	Insecure    bool          // without a token anybody may join
	TLS         bool          // connections between hosts are encrypted
	// Window is what all communicators of a session are made with together: bytes of receive buffers, rings
	// and send staging. 0: as the job needs (session.DefaultWindow).
	Window int64
	// Caller tells who calls, such as the number of the thread, by which this package knows that one
	// who waits in an operation cannot begin another one elsewhere. nil, or 0: not known.
	Caller func() uint64           `json:"-"`
	Memory func() map[string]int64 `json:"-"` // what this rank tells the others of its memory; nil: nothing
}

// Defaults of Config.
const (
	DefaultStart     = 300 * time.Second
	DefaultLiveness  = 20 * time.Second
	DefaultOperation = 1800 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Start <= 0 {
		c.Start = DefaultStart
	}
	if c.Liveness <= 0 {
		c.Liveness = DefaultLiveness
	}
	if c.Operation <= 0 {
		c.Operation = DefaultOperation
	}
	if c.Caller == nil {
		c.Caller = func() uint64 { return 0 }
	}
	return c
}

func (c Config) check() error {
	if c.World < 1 {
		return rendezvousf("world size %d: there must be at least one worker", c.World)
	}
	if c.Rank < 0 || c.Rank >= c.World {
		return rendezvousf("rank %d with world size %d: ranks go from 0 to %d", c.Rank, c.World, c.World-1)
	}
	if c.World > maxWorld {
		return rendezvousf("world size %d is more than %d", c.World, maxWorld)
	}
	if c.World > 1 && (c.MasterPort < 1 || c.MasterPort > 65535) {
		return rendezvousf("master port %d: it must be from 1 to 65535", c.MasterPort)
	}
	if c.World > 1 && c.MasterAddr == "" {
		return rendezvousf("no master address: give every worker the address of rank 0's host")
	}
	if err := c.Ports.Check(); err != nil {
		return &RendezvousError{err.Error()}
	}
	return nil
}

// maxWorld bounds what messages of the rendezvous may hold.
const maxWorld = 4096

// beatEvery is the time between two signs of life to rank 0, which also say where this rank
// is in the schedule: several must come within stillTime.
func (c Config) beatEvery() time.Duration {
	return min(500*time.Millisecond, c.Liveness/6)
}

// pingEvery is the time between two signs of life of this rank. Rank 0 sends them to all, so
// that with many ranks they come less often: about 32 a second.
func (c Config) pingEvery() time.Duration {
	if c.Rank != 0 {
		return c.beatEvery()
	}
	return min(time.Duration(max(16, c.World))*time.Second/32, c.Liveness/6)
}

// toldAfter is by how much what rank 0 tells of a rank lags.
func (c Config) toldAfter() time.Duration {
	c.Rank = 0
	return c.beatEvery() + c.pingEvery()
}
