package session

import (
	"fmt"
	"slices"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/mem"
)

// A window that nobody names is as large as the job can use, between these among few
// workers. Larger windows than mostWindow stop paying at about a MiB per link and direction.
const (
	leastWindow = 4 << 20
	mostWindow  = 16 << 20
)

// What a job can use: half a MiB for each peer, below which frames are small, and
// beyond that no more than the own rows of a tensor 256 wide in single precision,
// a tenth or so of what the worker holds while it trains.
const (
	peerBytes = 512 << 10
	rowBytes  = 1 << 10
)

// Among many workers mostWindow leaves frames that cost more than what they carry, so the
// window grows until a frame holds frameBytes, as long as it takes no more than half of
// those rows.
const (
	frameBytes = 256 << 10
	linkFrames = 6 // a link holds three in each direction
)

// DefaultWindow is the window of a session whose user names none, among so many
// workers, once it holds a graph of which no worker owns more than so many nodes.
func DefaultWindow(world int, nodes int64) int64 {
	window, peers, rows := int64(leastWindow), int64(world-1), nodes*rowBytes
	for window < mostWindow && (window < peers*peerBytes || 2*window <= rows) {
		window *= 2
	}
	// In whole MiB, with a page a link for what is not rows.
	frames := (peers*(linkFrames*frameBytes+linkBytes)*reduceShare/(reduceShare-1) + 1<<20 - 1) &^ (1<<20 - 1)
	return max(window, leastOf(world), min(frames, rows/2&^(1<<20-1)))
}

// Of the window, Reduce has an eighth and each further communicator a
// sixteenth; Train, which carries the rows, has the rest.
const (
	reduceShare = 8
	extraShare  = 16
	maxExtra    = 8
)

// linkBytes is the least that a link works with.
const linkBytes = 4096

// leastOf is the smallest window whose smallest share serves P-1 links.
func leastOf(world int) int64 { return int64(extraShare * linkBytes * (world - 1)) }

// enough tells whether a window serves all links, also with further
// communicators, before anything is taken down for it.
func enough(window int64, world int) error {
	if least := leastOf(world); window < least {
		return &mem.BudgetError{What: "window_bytes", Have: window, Minimum: least}
	}
	return nil
}

func trainBytes(window int64, extra int) int64 {
	return window - window/reduceShare - int64(extra)*(window/extraShare)
}

// SetWindow changes the window; with 0 the session sizes it itself. What is
// counted as the most held begins anew. Collective.
func (s *Session) SetWindow(bytes int64) error {
	if bytes < 0 {
		return Invalid("window_bytes is %d: it must be positive, or 0 for one that follows the job", bytes)
	}
	s.mu.Lock()
	auto, suits := bytes == 0, s.suits
	s.mu.Unlock()
	if auto {
		bytes = suits
	}
	if err := s.setWindow(bytes); err != nil {
		return err
	}
	s.mu.Lock()
	s.auto = auto
	s.mu.Unlock()
	return nil
}

// suit makes room for a job that can use so many bytes, if the window is the
// session's own to size. Collective, with the same number everywhere.
func (s *Session) suit(bytes int64) error {
	s.mu.Lock()
	s.suits = max(s.suits, bytes)
	grows := s.auto && s.window.Load() < s.suits
	bytes = s.suits
	s.mu.Unlock()
	if !grows || s.World() == 1 {
		return nil
	}
	return s.setWindow(bytes)
}

// suitGraph makes room for a graph.
func (s *Session) suitGraph(book *graph.Book) error {
	var most int64
	for p := range book.Parts {
		var own int64
		for t := range book.NodeTypes {
			own += book.NumNodes(t, p)
		}
		most = max(most, own)
	}
	return s.suit(DefaultWindow(s.World(), most))
}

func (s *Session) setWindow(bytes int64) error {
	if _, err := s.Comm(Train); err != nil {
		return err
	}
	if err := enough(bytes, s.World()); err != nil {
		return err
	}
	s.mu.Lock()
	comms := slices.Clone(s.comms)
	s.mu.Unlock()
	for id, c := range comms {
		share := bytes / extraShare
		switch CommID(id) {
		case Train:
			share = trainBytes(bytes, len(comms)-int(Reduce)-1)
		case Reduce:
			share = bytes / reduceShare
		}
		if err := s.resize(c, int(share)); err != nil {
			return err
		}
	}
	s.window.Store(bytes)
	mem.ResetPeak(mem.Window)
	return nil
}

// resize gives a communicator another share. One for sampling takes its turn
// among the batches that are on their way, which is the same on every rank.
func (s *Session) resize(c *comm.Communicator, share int) error {
	if w := s.sampler.Load().of(c); w != nil {
		return w.do(func(c *comm.Communicator) error { return c.Resize(share) })
	}
	return c.Resize(share)
}

// pageBytes is the granularity of rings.
const pageBytes = 4096

// tooNarrow is the error of a window whose share for c holds no row of so many bytes; what
// has those rows. What a frame holds grows in proportion to the window, in whole pages.
func (s *Session) tooNarrow(c *comm.Communicator, rowBytes int, what string) error {
	window, payload := s.window.Load(), c.MaxPayload()
	return &mem.BudgetError{
		What: fmt.Sprintf("window_bytes (%s %d bytes and a frame of this window holds %d): a window",
			what, rowBytes, payload),
		Have:    window,
		Minimum: (window/int64(payload) + 1) * int64(rowBytes+pageBytes),
	}
}
