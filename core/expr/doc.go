// Package expr computes edge expressions: what the message of an edge is, as a straight-line program over rows of its
// source, its destination, the edge itself and parameters, and what becomes of the messages of a destination.
//
// It is a compiler and an executor, and a list of calls is between them.
//
//	text ── Parse ──> Program            program.go, ops.go, reduce.go, shape.go, softmax.go
//	Program ── builder ──> code          code.go (forward), derive.go and plan.go (backward), push.go
//	code ── compile ──> calls            select.go, pattern.go and a file for each pattern, allocate.go
//	calls ── Sweep ──> results           sweep.go, blocks.go, segments.go, task.go, loops.go, scaled.go, scatter.go
//
// A code is registers and sinks: what is made of each edge, and where it is added up. calls is the same as loops over
// blocks of edges whose registers fit a core's cache, so nothing of edge size exists unless the result is of that
// size. It depends on the program and the element type alone, and nothing changes it. A Sweep gives it arrays and
// runs it over edges by rows or by columns of the matrix.
//
// # The road of an attention layer
//
// Forward, out[i] = Σ softmax(leaky(u[j] + v[i])) · x[j]:
//
//   - Parse finds that the result is a multiple of the softmax, which is therefore computed along with the sum
//     (Program.online). forwardCodes makes one code, whose sink is sinkOnline.
//   - compile has scaledRows recognize that what is added up are rows of x times coefficients, which are read where
//     they lie. So the calls are: load u, load v, add, leaky ReLU, weigh; and the sum. GATv2's logits are one call
//     (leakyAttention), those of dot-product attention another (dots).
//   - Run.Forward gives a Phase with a Sweep; exchange runs its Rows over own columns, and over those of each peer as
//     their rows come. Blocks fill (task.edges), flush runs the calls and the sum, weigh multiplies what was added so
//     far where the reference of the softmax rises.
//   - Phase.Finish divides by the sums (Run.finish).
//
// Backward computes the messages again:
//
//   - Differentiate derives a register for the gradient of each operand, by the gradients of the reduceDef, the opDefs
//     and softmaxGradient, and plans codes: source, by columns, for gradients of sources and whatever else is narrow
//     or can be scattered; target, by rows, for the rest. deltas come first where a softmax is not online.
//   - Run.Backward compiles source once, for own columns, for those of peers, and for edges into rows of peers where
//     owners compute (push.go). dotProducts joins the products with x and the sum for x, so that rows of gradients are
//     read once.
//   - exchange runs Columns; what is added up for destinations is collected in batches and added in order (scatter.go).
//     Finish adds the parts of parameters and what was added separately.
//
// # Order of sums
//
// Everything that is added up is added edge by edge in an order that the graph alone determines: by source within a
// destination, by destination within a source. So the number of threads and the window change no bit of a result or of
// a gradient, with exceptions that depend on the window: gradients of parameters, of destinations, and of tensors that
// an expression reads in several places, and whatever is added up for a row or column with so many edges that it is
// cut (segments.go).
//
// # What is added where
//
//   - An operation is a row of the table in ops.go, a way to reduce messages one of that in reduce.go.
//   - A form of expression with loops of its own is a pattern: a file, and a line in patterns.
//   - A storage is a row of the table in storage.go, with a loop of vec that makes numbers of it.
package expr
