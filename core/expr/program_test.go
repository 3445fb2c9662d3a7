package expr

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestParseNamesWhatIsWrong(t *testing.T) {
	const operands = `"operands":[{"side":"u","shape":[4,8]},{"side":"v","shape":[3]}]`
	for text, want := range map[string]string{
		`nonsense`: "JSON",
		`{"operands":[{"side":"x","shape":[1]}],"result":0,"reduce":"sum"}`:           `operand 0 has side "x"`,
		`{"operands":[{"side":"u","shape":[-1]}],"result":0,"reduce":"sum"}`:          "operand 0",
		`{"operands":[{"side":"u","shape":[99999,99999]}],"result":0,"reduce":"sum"}`: "operand 0",
		`{` + operands +
			`,"code":[{"op":"frobnicate","a":0}],"result":0,"reduce":"sum"}`: `instruction 0: operation "frobnicate"`,
		`{` + operands +
			`,"code":[{"op":"neg","a":2}],"result":0,"reduce":"sum"}`: "instruction 0 (neg) reads register 2",
		`{` + operands +
			`,"code":[{"op":"add","a":0}],"result":0,"reduce":"sum"}`: "instruction 0 (add) has no operand b",
		`{` + operands +
			`,"code":[{"op":"neg","a":0},{"op":"add","a":2,"b":1}],
			"result":0,"reduce":"sum"}`: "instruction 1 (add): shapes (4, 8) and (3) do not broadcast",
		`{` + operands +
			`,"code":[{"op":"dot","a":0,"b":1}],"result":0,"reduce":"sum"}`: "instruction 0 (dot): shapes (4, 8) and (3) differ",
		`{` + operands +
			`,"code":[{"op":"reshape","a":0,"shape":[5]}],"result":0,"reduce":"sum"}`: "(4, 8) cannot become (5)",
		`{` + operands +
			`,"code":[{"op":"total","a":0,"shape":[4,2]}],"result":0,"reduce":"sum"}`: "(4, 8) cannot be summed to (4, 2)",
		`{` + operands +
			`,"code":[{"op":"dropout","a":0,"alpha":1.5}],"result":0,"reduce":"sum"}`: "probability 1.5",
		`{` + operands +
			`,"code":[],"result":2,"reduce":"sum"}`: "result",
		`{` + operands +
			`,"code":[],"result":0,"reduce":"median"}`: `reduce "median"`,
		`{"operands":[` + strings.Repeat(`{"side":"u","shape":[]},`, 16) +
			`{"side":"u","shape":[]}],"result":0,"reduce":"sum"}`: "17 operands",
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

// Which expressions take one sweep, what travels back and forth, and what is kept.
func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name, text            string
		sweeps                int
		online                bool
		set                   uint32
		fetch, returns, saves uint32
	}{
		{"gat", benchPrograms["gat"], 1, true, 7, 5, 5, 7},
		{"gat, heads' logits alone", benchPrograms["gat"], 1, true, 2, 5, 0, 7},
		{"sum of both", benchPrograms["add"], 1, false, 3, 0, 1, 0},
		{"max of rows", benchPrograms["max"], 1, false, 1, 0, 1, 0},
		{"two sweeps",
			`{"operands":[{"side":"u","shape":[2]}],"code":[{"op":"softmax","a":0},{"op":"tanh","a":1}],"result":2,"reduce":"sum"}`,
			2, false, 1, 1, 1, 1},
		{"softmaxes of one level share a sweep", `{"operands":[{"side":"u","shape":[2]},{"side":"v","shape":[2]}],
			"code":[{"op":"softmax","a":0},{"op":"softmax","a":1},{"op":"add","a":2,"b":3}],"result":4,"reduce":"max"}`,
			2, false, 1, 1, 1, 1},
	} {
		p, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Differentiate(c.set, 4, false)
		if n := len(p.forwardCodes()); n != c.sweeps || (p.online >= 0) != c.online || plan.Fetch != c.fetch ||
			plan.Return != c.returns || plan.Saves != c.saves {
			t.Errorf("%s: %d sweeps, online %v, fetch %b, return %b, saves %b; want %d, %v, %b, %b, %b",
				c.name, n, (p.online >= 0), plan.Fetch, plan.Return, plan.Saves, c.sweeps, c.online, c.fetch, c.returns, c.saves)
		}
	}
}

// A plan is derived once for each set of operands, whoever asks and how often.
func TestPlanIsDerivedOnce(t *testing.T) {
	rel := benchRelation(t, 30, 200)
	r := newRun(t, rel, benchPrograms["gatv2"])
	for range 3 {
		forward(r)
		if err := backwardWhole(r); err != nil {
			t.Fatal(err)
		}
	}
	p := r.Program
	all := p.Differentiate(7, 4, false)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if p.Differentiate(7, 4, false) != all {
				t.Error("another plan for the same operands")
			}
		})
	}
	wg.Wait()
	if p.plans.derived != 1 {
		t.Errorf("the gradients of one set of operands were derived %d times", p.plans.derived)
	}
	if p.Differentiate(3, 4, false) == all || p.plans.derived != 2 {
		t.Errorf("two sets of operands took %d derivations", p.plans.derived)
	}
}

// Every operation that a program may say is in the table, with a gradient for each operand;
// and whatever is a loop has a value, an oracle and, where its gradient takes one, a slope.
func TestEveryOperationIsDefined(t *testing.T) {
	whole := []op{opDot, opTotal, opReshape, opSoftmax, opDropout} // more than a loop
	for o := opLoad + 1; o < numOps; o++ {
		d, operands := defs64.ops[o], 1
		if o.binary() {
			operands = 2
		}
		if d.name == "" || len(d.gradient) != operands ||
			slices.ContainsFunc(d.gradient, func(r gradientRule) bool { return r == nil }) {
			t.Errorf("operation %d (%q) has no name, or no gradient for each of %d operands", o, d.name, operands)
			continue
		}
		if slices.Contains(whole, o) {
			continue
		}
		if (d.value == nil) == (d.pair == nil) || o.binary() != (d.pair != nil) {
			t.Errorf("%s has no value", d.name)
		}
		if d.oracle == nil {
			t.Errorf("%s has no oracle", d.name)
		}
		g := (&Program{nodes: make([]node, 3)}).derive(0) // three registers to differentiate in
		n := node{op: o, a: 0, b: 1}
		for _, rule := range d.gradient {
			rule(g, 2, n, 0)
		}
		if d.slope == nil && slices.ContainsFunc(g.nodes, func(n node) bool { return n.op == opSlope }) {
			t.Errorf("the gradient of %s is its slope, and it has none", d.name)
		}
	}
}
