package session_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"sar/core/internal/dtypes"
	"sar/core/internal/freeport"
	"sar/core/session"
)

// onTwo runs a function on two workers and prints what each returns. Workers are goroutines here;
// examples/go has processes.
func onTwo(f func(ctx context.Context, s *session.Session) (any, error)) {
	port := freeport.Find()
	var found [2]any
	var workers sync.WaitGroup
	for rank := range 2 {
		workers.Go(func() {
			ctx := context.Background()
			s, err := session.Open(ctx, session.Config{
				Rank: rank, World: 2, MasterAddr: "127.0.0.1", MasterPort: port, JobToken: "the secret of this example",
			})
			if err != nil {
				log.Print(err)
				return
			}
			defer s.Close()
			if found[rank], err = f(ctx, s); err != nil {
				s.Abort(err.Error()) // the other worker would wait
			} else {
				err = s.Barrier(ctx, session.Reduce) // no worker leaves while another still reads from it
			}
			if err != nil {
				log.Printf("rank %d: %v", rank, err)
			}
		})
	}
	workers.Wait()
	fmt.Println(found)
}

// ring is a ring of four nodes. Worker 0 owns nodes 0 and 1, worker 1 nodes 2 and 3; each has the
// edges into its own.
func ring(ctx context.Context, s *session.Session) (*session.Graph, error) {
	first := 2 * int64(s.Rank())
	return s.GraphFromEdges(ctx, []int64{0, 2, 4}, []int64{(first + 3) % 4, first}, []int64{first, first + 1})
}

func rows(x ...float32) session.Rows[float32] {
	return session.Rows[float32]{Data: x, N: len(x), Width: 1}
}

// Each node of a ring gets the square of the feature of the one before it, and the gradient of the
// sum of these squares goes back to that one.
func ExampleRun() {
	var b session.Builder
	sumOfSquares(b.U(1), func(rank int) session.Rows[float32] { return rows(float32(2*rank+1), float32(2*rank+2)) })
	// Output: [[16 1] [2 4] [4 9] [6 8]]
}

// sumOfSquares runs a program on two workers, forward and backward.
func sumOfSquares(x session.Expr, features func(rank int) session.Rows[float32]) {
	program, err := x.Mul(x).Sum()
	if err != nil {
		log.Fatal(err)
	}
	onTwo(func(ctx context.Context, s *session.Session) (any, error) {
		g, err := ring(ctx, s)
		if err != nil {
			return nil, err
		}
		defer g.Free()
		call, err := session.Run(ctx, g, program, session.Inputs[float32]{
			Operands: []session.Rows[float32]{features(s.Rank())}, Grads: []int{0},
		})
		if err != nil {
			return nil, err
		}
		grads, err := call.Backward(ctx, rows(1, 1))
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(call.Out.Data, grads[0].Data), nil
	})
}

// Rows that are stored and travel in bfloat16, where 1.3 is 1.296875; what is computed of them is float32. Each node
// gets the square of the feature of the one before it, and the gradient of the sum of these squares goes back there.
func ExampleExpr_InBFloat16() {
	var b session.Builder
	half := []uint16{dtypes.ToBFloat16(1.3), dtypes.ToBFloat16(2)}
	sumOfSquares(b.U(1).InBFloat16(), func(int) session.Rows[float32] {
		return session.Rows[float32]{Half: half, N: 2, Width: 1}
	})
	// Output: [[4 1.6818848] [2.59375 4] [4 1.6818848] [2.59375 4]]
}

func ExampleAllReduce() {
	onTwo(func(ctx context.Context, s *session.Session) (any, error) {
		x := []float64{1, float64(s.Rank())}
		return x, session.AllReduce(ctx, s, session.Reduce, x, session.Sum)
	})
	// Output: [[2 1] [2 1]]
}

// Scores of edges are normalized over the in-edges of each node, and weigh what nodes send.
func ExampleBuilder() {
	var b session.Builder
	h, left, right := b.U(4, 8), b.U(4, 1), b.V(4, 1)
	program, err := h.Mul(left.Add(right).LeakyReLU(0.2).Softmax()).Sum()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", program.Info())
	// Output: {Shape:[4 8] Softmaxes:[4] Seeds:0 Winner:false Collective:true}
}
