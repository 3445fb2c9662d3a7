package session

import (
	"time"

	"sar/core/comm"
	"sar/core/mem"
)

// Window is the budget for remote rows: its size, what communicators hold of it,
// and the most they have held since it has that size.
type Window struct {
	Limit int64 `json:"limit"`
	Live  int64 `json:"live"`
	Peak  int64 `json:"peak"`
}

// Stats is what sar_session_stats tells.
type Stats struct {
	Rank       int                       `json:"rank"`
	World      int                       `json:"world"`
	Peers      []comm.PeerStats          `json:"peers"`
	Window     Window                    `json:"window"`
	Links      []LinkStats               `json:"links"`
	Operations map[string]comm.KindStats `json:"operations"`
}

// LinkStats is what one communicator has carried to and from one peer. Payload
// is rows and numbers, bytes include the headers of frames.
type LinkStats struct {
	Peer         int    `json:"peer"`
	Communicator string `json:"communicator"`
	Transport    string `json:"transport"`
	SentPayload  uint64 `json:"sent_payload"`
	SentBytes    uint64 `json:"sent_bytes"`
	SentFrames   uint64 `json:"sent_frames"`
	RecvPayload  uint64 `json:"recv_payload"`
	RecvBytes    uint64 `json:"recv_bytes"`
	RecvFrames   uint64 `json:"recv_frames"`
	// Of the sent payload: rows that the peer reads, and what was computed here for
	// rows that the peer owns.
	SentPulled uint64 `json:"sent_pulled"`
	SentHome   uint64 `json:"sent_home"`
	// Rows of destinations for the owner of sources, which computes their gradients.
	SentPushed uint64 `json:"sent_pushed"`
}

// Stats returns what this worker has done so far.
func (s *Session) Stats() Stats {
	g := s.group.Stats()
	window := mem.Stats()[mem.Window]
	out := Stats{
		Rank: g.Rank, World: g.World, Peers: g.Peers, Operations: g.Operations,
		Window: Window{Limit: s.windowLimit(), Live: window.Live, Peak: window.Peak},
		Links:  make([]LinkStats, len(g.Links)),
	}
	if out.Peers == nil {
		out.Peers = []comm.PeerStats{}
	}
	for i, l := range g.Links {
		out.Links[i] = LinkStats{
			Peer: l.Peer, Communicator: l.Communicator, Transport: l.Transport,
			SentPayload: l.SentPayload, SentBytes: l.SentBytes, SentFrames: l.SentFrames,
			RecvPayload: l.RecvPayload, RecvBytes: l.RecvBytes, RecvFrames: l.RecvFrames,
			SentPulled: l.Moved[comm.Pulled], SentHome: l.Moved[comm.ToOwner], SentPushed: l.Moved[comm.Pushed],
		}
	}
	return out
}

// Usage is the size of one purpose of memory, now and at most.
type Usage struct {
	Live int64 `json:"live"`
	Peak int64 `json:"peak"`
}

// MemoryStats returns the engine's memory by purpose, and "total"; beside it
// "tensors", the caller's where they are counted, "kept", what is kept of freed
// ones, and "resident", the process as a whole.
func MemoryStats() map[string]Usage {
	mem.CountRuntime()
	used, kept := mem.Tensors()
	out := map[string]Usage{
		"total": Usage(mem.Total()), "tensors": Usage(used), "kept": {kept, kept}, "resident": Usage(mem.Resident()),
	}
	for p, u := range mem.Stats() {
		out[mem.Purpose(p).String()] = Usage(u)
	}
	return out
}

// memoryPeaks is what this worker tells the others of its memory.
func memoryPeaks() map[string]int64 {
	out := map[string]int64{}
	for name, u := range MemoryStats() {
		out[name] = u.Peak
	}
	return out
}

// Memory is the largest of what workers held, by the names of MemoryStats.
type Memory struct {
	Peaks   map[string]int64 `json:"peaks"`
	Workers int              `json:"workers"` // who are known of
}

// Memory returns the largest peaks of all workers. It waits at most so long for
// the others to say goodbye, with which their last figures come; of one that has
// not, those of its last sign of life count. A session that failed has none.
func (s *Session) Memory(wait time.Duration) (Memory, error) {
	reports, err := s.group.Memory(wait)
	if err != nil {
		return Memory{}, err
	}
	out := Memory{Peaks: map[string]int64{}}
	for _, report := range reports {
		if report == nil {
			continue
		}
		out.Workers++
		for name, n := range report {
			out.Peaks[name] = max(out.Peaks[name], n)
		}
	}
	return out, nil
}
