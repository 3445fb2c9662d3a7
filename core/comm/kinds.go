package comm

import (
	"fmt"

	"sar/core/transport"
)

// Kind says what an operation does. It travels in every frame, so that ranks
// that disagree about what comes next notice before data is mixed up.
type Kind uint8

const (
	KindNone       Kind = iota
	KindCreate          // making or resizing a communicator, and start-up
	KindBuild           // exchanges while a graph is built
	KindAggregate       // sum and mean of messages
	KindSDDMM           // gradients of edge weights, scores per edge
	KindMessage         // message functions written in Python
	KindAllReduce       // collectives of Communicator
	KindBroadcast       //
	KindAllToAll        //
	KindAllGather       //
	KindPair            //
	KindBarrier         //
	KindSample          // neighbourhood sampling
	KindBlock           // making blocks (message-flow graphs)
	KindFetch           // rows by number
	KindExpression      // messages as edge expressions
	numKinds            //
)

var kindNames = [numKinds]string{
	"no operation", "communicator set-up", "graph construction", "aggregation", "edge scores", "message function",
	"all-reduce", "broadcast", "all-to-all", "all-gather",
	"pair exchange", "barrier", "sampling", "block construction", "row fetch", "edge expression",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("operation of unknown kind %d", uint8(k))
}

// Dir tells the forward from the backward half of an operation.
type Dir uint8

const (
	None Dir = iota
	Forward
	Backward
)

func (d Dir) String() string {
	if names := [...]string{"", "forward", "backward"}; int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("direction %d", uint8(d))
}

// Step is one operation of the common schedule. Two ranks are in step if theirs
// meet.
type Step struct {
	Comm    uint32
	Seq     uint64
	Kind    Kind
	Dir     Dir
	Content uint32 // what is sent, and for whom (place.go); 0 where the kind says all
}

func stepOf(t transport.Tag) Step {
	return Step{Comm: uint32(t.Comm), Seq: t.Seq, Kind: Kind(t.Kind), Dir: Dir(t.Dir), Content: t.Content}
}

// meets tells whether two ranks in these steps are in one operation.
func (s Step) meets(other Step) bool {
	return s.sameButContent(other) && sameContent(s.Content, other.Content)
}

// sameButContent tells whether two steps differ in nothing but what is sent.
func (s Step) sameButContent(other Step) bool {
	s.Content = other.Content
	return s == other
}

// describe names the step as messages do: `forward aggregation (operation 12
// of communicator "train")`.
func (s Step) describe(name string) string {
	what := s.Kind.String()
	if s.Dir != None {
		what = s.Dir.String() + " " + what
	}
	return fmt.Sprintf("%s (operation %d of %s)", what, s.Seq, name)
}
