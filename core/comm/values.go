package comm

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"sar/core/internal/argument"
)

// Values are small, and rank 0 keeps them for all ranks, by name, while the group lasts: what ranks
// have to tell each other outside of collective calls.

// ValueRequest asks rank 0 for something of a value.
type ValueRequest struct {
	Op    string `json:"op"`  // see values.do
	Key   string `json:"key"` // its name
	Value []byte `json:"value,omitempty"`
	Old   []byte `json:"old,omitempty"`
	Add   int64  `json:"add,omitempty"`
	ID    uint64 `json:"id,omitempty"` // of the question, where it travels
}

// ValueReply is what there is then.
type ValueReply struct {
	There  bool   `json:"there"`
	Value  []byte `json:"value"`
	Number int64  `json:"number"`
	ID     uint64 `json:"id,omitempty"`
}

// maxValue bounds a value and its name, which fit into a message together with what JSON makes of them.
const maxValue = 1 << 20

// values are rank 0's.
type values struct {
	mu   sync.Mutex
	kept map[string][]byte
}

// do does what is asked for.
func (v *values) do(r ValueRequest) (reply ValueReply) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, there := v.kept[r.Key]
	switch r.Op {
	case "get":
		reply.Value = old
	case "set":
		v.kept[r.Key] = r.Value
	case "add": // numbers are kept in decimal digits
		n, _ := strconv.ParseInt(string(old), 10, 64)
		reply.Number = n + r.Add
		v.kept[r.Key] = strconv.AppendInt(nil, reply.Number, 10)
	case "swap": // where what is there is old, or there is nothing and old is empty
		if reply.Value = old; bytes.Equal(old, r.Old) {
			v.kept[r.Key], reply.Value = r.Value, r.Value
		}
	case "delete":
		delete(v.kept, r.Key)
	case "count":
		reply.Number = int64(len(v.kept))
	}
	reply.There, reply.ID = there, r.ID
	return reply
}

// Value asks for something of a value: get, set, add, swap, delete, or count, which says how many there
// are. Not collective. It does not wait for other ranks but rank 0, which need not be in any call.
func (g *Group) Value(r ValueRequest) (none ValueReply, err error) {
	switch r.Op {
	case "get", "set", "add", "swap", "delete", "count":
	default:
		return none, argument.Errorf("op is %q: it is get, set, add, swap, delete or count", r.Op)
	}
	if len(r.Key)+len(r.Value)+len(r.Old) > maxValue {
		return none, argument.Errorf("a value of %d bytes, and with its name at most %d are allowed", len(r.Value), maxValue)
	}
	if err := g.usable(); err != nil {
		return none, err
	}
	if g.cfg.Rank == 0 {
		return g.values.do(r), nil
	}
	told := make(chan ValueReply, 1)
	r.ID = g.asked.Add(1)
	g.asking.Store(r.ID, told)
	defer g.asking.Delete(r.ID)
	g.send(message{Type: msgValue, Asked: &r}, g.peers[0])
	timer := time.NewTimer(g.cfg.Operation)
	defer timer.Stop()
	select {
	case reply := <-told:
		return reply, nil
	case <-g.failed:
	case <-g.done:
	case <-g.peers[0].bye:
		return none, g.lost(0, shutDown)
	case <-timer.C:
		return none, g.fail(&DeadlineError{Op: "a value", Seconds: g.cfg.Operation.Seconds(), Phase: g.phaseOf(0)}, true)
	}
	return none, g.usable()
}

// told takes what rank r says of a value: at rank 0 a question, elsewhere the answer.
func (g *Group) told(r int, m message) {
	if g.cfg.Rank == 0 && m.Asked != nil {
		reply := g.values.do(*m.Asked)
		g.send(message{Type: msgValue, Told: &reply}, g.peers[r])
	}
	if r == 0 && m.Told != nil {
		deliver(&g.asking, m.Told.ID, *m.Told)
	}
}
