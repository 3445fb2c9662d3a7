"""Drawing random graphs, how they fall to workers, and programs of message passing on them.

Hypothesis chooses sizes, shapes and steps, which it can shrink; numbers and ends of edges come from numpy by a seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

BUILT_IN = [f"{a}_{op}_{b}" for op in ("add", "sub", "mul", "div", "dot") for a in "uve" for b in "uve" if a != b]
SMOOTH = ["tanh", "sigmoid", "double", "half_more", "square", "exp_tanh"]
UNARY = {  # of expressions: alpha, and whether the operand must be positive
    "neg": (0.0, False),
    "leaky_relu": (0.2, False),
    "elu": (1.5, False),
    "relu": (0.0, False),
    "sigmoid": (0.0, False),
    "tanh": (0.0, False),
    "softplus": (0.0, False),
    "scale": (-1.5, False),
    "shift": (0.5, False),
    "rsub": (2.0, False),
    "abs": (0.0, False),
    "log": (0.0, True),
    "sqrt": (0.0, True),
    "reciprocal": (0.0, True),
}
KINKED = ("relu", "leaky_relu", "abs", "elu")

BASES = [(), (1,), (3,), (2, 3), (2, 1), (4, 2), (2, 2, 2), (47,)]


def broadcast(a: Any, b: Any) -> tuple[int, ...] | None:
    try:
        return tuple(np.broadcast_shapes(a, b))
    except ValueError:
        return None


class Drawing:
    """A program while it is drawn. ``values``: name -> (place, shape, exact, positive), where the place is "n0" for
    nodes of type 0, "e1" for edges of relation 1, "p" for parameters. An exact value has the same bits on any number of
    workers, so that a maximum of float32 picks the same edge."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.double = draw(st.integers(0, 9)) < 7
        kinds = draw(st.integers(1, 3))
        self.counts = [draw(st.integers(1, 14)) for _ in range(kinds)]
        relations = draw(st.integers(1, 3)) if kinds > 1 or draw(st.booleans()) else 1
        ends = [(draw(st.integers(0, kinds - 1)), draw(st.integers(0, kinds - 1))) for _ in range(relations)]
        if kinds > 1 and relations == 1 and ends[0][0] == ends[0][1]:
            ends[0] = (0, 1)
        self.relations = ends
        self.num_edges = [draw(st.integers(0, 50)) for _ in ends]
        self.base = draw(st.sampled_from(BASES))
        self.values: dict[str, tuple[str, tuple[int, ...], bool, bool]] = {}
        self.leaves: dict[str, dict[str, Any]] = {}
        self.steps: list[dict[str, Any]] = []

    def one(self, of: Any) -> Any:
        return self.draw(st.sampled_from(list(of)))

    def maybe(self) -> bool:
        return bool(self.draw(st.booleans()))

    def place(self, rel: int, side: str) -> str:
        return f"e{rel}" if side == "e" else f"n{self.relations[rel][0 if side == 'u' else 1]}"

    def shape(self) -> tuple[int, ...]:
        """One that broadcasts with the base."""
        base = self.base
        thin = tuple(1 if self.maybe() else d for d in base)
        return self.one([base, base, thin, base[1:] if base else base])

    def leaf(self, place: str, shape: tuple[int, ...], positive: bool = False) -> str:
        name = f"{'w' if place == 'p' else 'x'}{len(self.leaves)}"
        self.leaves[name] = {
            "place": place,
            "shape": shape,
            "positive": positive,
            "strided": self.draw(st.integers(0, 5)) == 5,
            "wants": self.one(["all", "all", "all", "none", "first", "last"]) if place != "p" else "all",
        }
        self.values[name] = (place, shape, True, positive)
        return name

    def value(self, place: str, shape: Any = None, fits: Any = None, positive: bool = False) -> str:
        """A value at a place: of a shape, or one that broadcasts with ``fits``; a new leaf, or one that there is."""
        known = [
            name
            for name, (at, s, _, p) in self.values.items()
            if at == place
            and (shape is None or s == shape)
            and (fits is None or broadcast(s, fits) is not None)
            and (p or not positive)
        ]
        if known and self.draw(st.integers(0, 3)):
            return self.one(known[-4:])
        if shape is None:
            shape = self.shape()
            if fits is not None and broadcast(shape, fits) is None:
                shape = fits
        return self.leaf(place, shape, positive)

    def of(self, name: str) -> tuple[int, ...]:
        return self.values[name][1]

    def add(self, step: dict[str, Any], place: str, shape: Any, exact: bool, positive: bool = False) -> None:
        """A step, and most times an activation that keeps its numbers near 1."""
        step["out"] = f"y{len(self.steps)}"
        self.steps.append(step)
        self.values[step["out"]] = (place, shape, exact, positive)
        if step["op"] != "activate" and self.draw(st.integers(0, 3)):
            self.activate(step["out"])

    # ---- steps -----------------------------------------------------------

    def activate(self, name: str) -> None:
        f = self.one([*SMOOTH, "tanh", "tanh"] + (["leaky_relu"] if self.double else []))
        place, shape, _, _ = self.values[name]
        self.add({"op": "activate", "f": f, "a": name}, place, shape, False, f in ("sigmoid", "exp_tanh"))

    def message(self, rel: int) -> tuple[dict[str, Any], tuple[int, ...], bool]:
        """A message: what a step says of it, its shape, and whether it is exact."""
        pick = self.draw(st.integers(0, 9))
        if pick < 2:
            side = self.one("uue")
            name = self.value(self.place(rel, side))
            return {side: [name], "message": [f"copy_{side}", name]}, self.of(name), self.values[name][2]
        if pick < 7:
            return self.built_in(rel)
        return self.python(rel)

    def built_in(self, rel: int) -> tuple[dict[str, Any], tuple[int, ...], bool]:
        name = self.one(BUILT_IN)
        a, op, b = name.split("_")
        left = self.value(self.place(rel, a))
        if op == "dot":
            if not self.of(left):
                op, name = "mul", f"{a}_mul_{b}"
            else:
                right = self.value(self.place(rel, b), shape=self.of(left))
        if op != "dot":
            right = self.value(self.place(rel, b), fits=self.of(left), positive=op == "div")
        shape = broadcast(self.of(left), self.of(right))
        assert shape is not None
        if op == "dot":
            shape = (*shape[:-1], 1)
        exact = op != "dot" and self.values[left][2] and self.values[right][2]
        return {a: [left], b: [right], "message": [name, left, right]}, shape, exact

    def python(self, rel: int) -> tuple[dict[str, Any], tuple[int, ...], bool]:
        plain = ["source", "both", "gate", "all", "target", "edge", "linear", "weighed"]
        name = self.one(plain + ["counting", "writing", "views", "branching", "wide"])
        if name in ("writing", "views", "branching", "wide"):
            return self.with_effects(rel, name)
        u = v = e = w = None
        shape: tuple[int, ...] | None = None
        if name in ("source", "both", "gate", "all", "linear", "weighed", "counting"):
            u = self.value(self.place(rel, "u"))
            shape = self.of(u)
            if name in ("linear", "weighed") and not shape:
                name = "source"
        if name in ("both", "all", "target", "weighed"):
            v = self.value(self.place(rel, "v"), shape=shape)
            shape = self.of(v)
        if name in ("gate", "all", "edge"):
            e = self.value(self.place(rel, "e"), shape=shape)
            shape = self.of(e)
        assert shape is not None
        if name in ("linear", "weighed"):
            width = self.one([1, 4])
            w = self.leaf("p", (shape[-1], width))
            shape = (*shape[:-1], width)
        step = {"message": [name, u, v, e, w]}
        for side, column in (("u", u), ("v", v), ("e", e)):
            if column is not None:
                step[side] = [column]
        return step, shape, False

    def with_effects(self, rel: int, name: str) -> tuple[dict[str, Any], tuple[int, ...], bool]:
        """Functions that write in place, branch, or have a wide layer in them."""
        e = w = None
        shape = self.one([(3,), (2, 3), (1,), (47,)])
        u, v = (self.value(self.place(rel, side), shape=shape) for side in "uv")
        if name == "branching":
            e, w = self.leaf(f"e{rel}", (2,)), self.leaf("p", (shape[-1], shape[-1]))
        if name == "wide":
            w = self.leaf("p", (shape[-1], self.one([256, 1024])))
        step: dict[str, Any] = {"message": [name, u, v, e, w], "u": [u], "v": [v]}
        return (step if e is None else {**step, "e": [e]}), shape, False

    def reduce(self, exact: bool) -> str:
        """Of values that are not exact, a maximum in float32 may pick another edge than DGL."""
        return self.one(["sum", "mean", "max", "min"] if exact or self.double else ["sum", "mean"])

    def update(self) -> None:
        rel = self.draw(st.integers(0, len(self.relations) - 1))
        step, shape, exact = self.message(rel)
        reduce: Any = self.reduce(exact)
        if self.draw(st.integers(0, 4)) == 0 and self.num_edges[rel]:  # a Python reducer
            name, node, w = self.one(["logsumexp", "squares", "with_node", "linear"]), None, None
            if name == "linear" and not shape:
                name = "squares"
            if name == "with_node":
                node = self.value(self.place(rel, "v"), shape=shape)
                step["v"] = sorted({*step.get("v", []), node})
            if name == "linear":
                w = self.leaf("p", (shape[-1], 3))
                shape = (*shape[:-1], 3)
            reduce = [name, node, w]
        exact = exact and reduce in ("max", "min")
        self.add({"op": "update", "rel": rel, "reduce": reduce, **step}, self.place(rel, "v"), shape, exact)

    def edges(self) -> None:
        rel = self.draw(st.integers(0, len(self.relations) - 1))
        step, shape, exact = self.message(rel)
        self.add({"op": "edges", "rel": rel, **step}, f"e{rel}", shape, exact)

    def softmax(self) -> None:
        rel = self.draw(st.integers(0, len(self.relations) - 1))
        shape = self.one([(1,), (2,), (2, 1)])
        if self.maybe():
            known = [n for n, (at, s, _, _) in self.values.items() if at == f"e{rel}" and s]
            name = self.one(known[-3:]) if known else self.leaf(f"e{rel}", shape)
        else:
            name = self.leaf(f"e{rel}", shape)
        norm = self.one(["dst", "dst", "src"])
        self.add({"op": "softmax", "rel": rel, "a": name, "norm": norm}, f"e{rel}", self.of(name), False)

    def attend(self) -> None:
        """Scores of a built-in message, activations, softmax, and a sum weighted by it."""
        rel = self.draw(st.integers(0, len(self.relations) - 1))
        step, shape, _ = self.built_in(rel)
        known = SMOOTH + (["leaky_relu"] if self.double else [])
        chain = [self.one(known) for _ in range(self.draw(st.integers(0, 2)))]
        if not {"tanh", "sigmoid"} & set(chain):
            chain.append("tanh")  # scores near 1: DGL's softmax by source overflows beyond
        value = self.value(self.place(rel, "u"), fits=shape) if self.maybe() else None
        if value is not None:
            step["u"] = sorted({*step.get("u", []), value})
            both = broadcast(shape, self.of(value))
            assert both is not None
            shape = both
        norm = self.one(["dst", "dst", "src"])
        step = {"op": "attend", "rel": rel, "chain": chain, "norm": norm, "value": value, **step}
        self.add(step, self.place(rel, "v"), shape, False)

    def blocks(self) -> None:
        """Layers on blocks, in graphs of one type."""
        if len(self.counts) > 1 or len(self.relations) > 1:
            self.attend()
            return
        a = self.value("n0")
        seeds = sorted(self.draw(st.lists(st.integers(0, self.counts[0] - 1), unique=True)))
        layers, reduce = self.draw(st.integers(1, 3)), self.one(["sum", "mean"])
        step = {"op": "blocks", "a": a, "seeds": seeds, "layers": layers, "keep": self.maybe(), "reduce": reduce}
        self.add(step, "n0", self.of(a), False)

    def combine(self) -> None:
        """Sum or product of two values at one place."""
        places = sorted({at for at, _, _, _ in self.values.values() if at != "p"})
        place = self.one(places) if places else "n0"
        a = self.value(place)
        b = self.value(place, shape=self.of(a))
        self.add({"op": "combine", "f": self.one(["add", "mul"]), "a": a, "b": b}, place, self.of(a), False)

    def multiply(self) -> None:
        """A dense layer."""
        place = f"n{self.draw(st.integers(0, len(self.counts) - 1))}"
        a = self.value(place)
        if not self.of(a):
            self.activate(a)
            return
        w = self.leaf("p", (self.of(a)[-1], self.of(a)[-1]))
        self.add({"op": "multiply", "a": a, "w": w}, place, self.of(a), False)

    def multi(self) -> None:
        """Several relations into one type of nodes."""
        target = self.one([dst for _, dst in self.relations])
        parts, shape = [], self.base
        # DGL lets infinities of nodes without in-edges through where only some of the relations take a maximum
        extreme = self.one(["max", "min"]) if self.double and self.draw(st.integers(0, 2)) == 0 else None
        for rel, (_, dst) in enumerate(self.relations):
            if dst == target:
                self.num_edges[rel] = max(1, self.num_edges[rel])  # DGL's gradients want some
                u = self.value(self.place(rel, "u"), shape=shape)
                parts.append(
                    {"rel": rel, "u": [u], "message": ["copy_u", u], "reduce": extreme or self.one(["sum", "mean"])}
                )
        cross = self.one(["sum", "mean", "max", "min"] if self.double else ["sum", "mean"])
        self.add({"op": "multi", "parts": parts, "cross": cross}, f"n{target}", shape, False)

    def tree(self, rel: int, depth: int) -> tuple[Any, tuple[int, ...], bool]:
        """An expression, its shape, and whether it is positive."""
        pick = self.draw(st.integers(0, 9)) if depth else 0
        if pick < 3:
            if self.draw(st.integers(0, 5)) == 0:
                shape = self.shape()
                return ["param", self.leaf("p", shape)], shape, False
            side = self.one("uve")
            name = self.value(self.place(rel, side), fits=self.base)
            return ["load", side, name], self.of(name), self.values[name][3]
        a, shape, positive = self.tree(rel, depth - 1)
        if pick < 6:
            op = self.one([k for k in UNARY if self.double or k not in KINKED])
            alpha, needs = UNARY[op]
            if needs and not positive:
                a = ["unary", "shift", ["unary", "softplus", a, 0.0], 0.5]
            made = op in ("sigmoid", "softplus", "sqrt", "reciprocal")
            return ["unary", op, a, alpha], shape, made
        if pick < 9:
            b, other, safe = self.tree(rel, depth - 1)
            both = broadcast(shape, other)
            if both is None:
                return a, shape, positive
            op = self.one(["add", "sub", "mul", "mul", "div", "dot"])
            if op == "div" and not safe:
                b = ["unary", "shift", ["unary", "softplus", b, 0.0], 0.5]
            if op == "dot":
                if not shape or not other or shape[-1] != other[-1]:
                    op = "mul"
                else:
                    both = (*both[:-1], 1)
            return ["binary", op, a, b], both, positive and safe and op in ("add", "mul", "div")
        if shape and self.maybe():
            dim, keep = self.draw(st.integers(0, len(shape) - 1)), self.maybe()
            left = list(shape)
            left[dim] = 1
            if not keep:
                del left[dim]
            return ["total", a, dim, keep], tuple(left), positive
        return ["softmax", a], shape, True

    def expr(self) -> None:
        rel = self.draw(st.integers(0, len(self.relations) - 1))
        tree, shape, _ = self.tree(rel, 3)
        reduce = self.one(["sum", "mean", "max", "min", None] if self.double else ["sum", "mean", None])
        place = f"e{rel}" if reduce is None else self.place(rel, "v")
        self.add({"op": "expr", "rel": rel, "tree": tree, "reduce": reduce}, place, shape, False)


STEPS = ["update", "update", "update", "edges", "edges", "softmax", "combine", "multiply", "multi", "expr", "expr"]
STEPS += ["attend", "attend", "blocks"]


@st.composite
def programs(draw: Any, world: int) -> dict[str, Any]:
    """A graph, how it falls to ``world`` workers, and a program."""
    drawing = Drawing(draw)
    for _ in range(draw(st.integers(1, 5))):
        getattr(drawing, draw(st.sampled_from(STEPS)))()
    return {
        "counts": drawing.counts,
        "relations": drawing.relations,
        "num_edges": drawing.num_edges,
        # where the nodes of each type are cut: some workers own none
        "cuts": [sorted(draw(st.integers(0, n)) for _ in range(world - 1)) for n in drawing.counts],
        "dtype": "float64" if drawing.double else "float32",
        "leaves": drawing.leaves,
        "steps": drawing.steps,
        "places": {name: at for name, (at, *_) in drawing.values.items()},
        "shapes": {name: shape for name, (_, shape, *_) in drawing.values.items()},
        "seed": draw(st.integers(0, 1 << 20)),
    }
