package session

import (
	"sar/core/comm"
	"sar/core/mem"
)

// Window is the budget for remote rows: its size and what communicators hold of it.
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
		}
	}
	return out
}

// Usage is the size of one purpose of memory, now and at most.
type Usage struct {
	Live int64 `json:"live"`
	Peak int64 `json:"peak"`
}

// MemoryStats returns the engine's memory by purpose, and "total".
func MemoryStats() map[string]Usage {
	mem.CountRuntime()
	out := map[string]Usage{"total": Usage(mem.Total())}
	for p, u := range mem.Stats() {
		out[mem.Purpose(p).String()] = Usage(u)
	}
	return out
}
