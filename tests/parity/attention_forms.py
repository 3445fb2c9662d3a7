"""Forms of attention as programs of edge expressions."""

from __future__ import annotations

from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V

FORMS = ("additive", "with an edge term", "gatv2", "dot product", "cosine")


def form(name: str, heads: int, width: int) -> tuple[list[Leaf], Program]:
    """Operands and message of a form of attention."""
    narrow, wide = (heads, 1), (heads, width)
    if name == "additive":
        leaves = [Leaf(U, narrow), Leaf(V, narrow), Leaf(U, wide)]
        logits: Program = ["leaky_relu", ["add", ["load", U, 0], ["load", V, 1]], 0.2]
        return leaves, ["mul", ["load", U, 2], ["softmax", logits]]
    if name == "with an edge term":
        leaves = [Leaf(U, narrow), Leaf(V, narrow), Leaf(U, wide), Leaf(E, narrow)]
        logits = ["leaky_relu", ["add", ["add", ["load", U, 0], ["load", V, 1]], ["load", E, 3]], 0.2]
        return leaves, ["mul", ["load", U, 2], ["softmax", logits]]
    if name == "gatv2":
        leaves = [Leaf(U, wide), Leaf(V, wide), Leaf(P, wide)]
        act: Program = ["leaky_relu", ["add", ["load", U, 0], ["load", V, 1]], 0.2]
        return leaves, ["mul", ["load", U, 0], ["softmax", ["total", ["mul", act, ["param", 2]], [1], True]]]
    if name == "dot product":  # keys and values of their own
        leaves = [Leaf(U, wide), Leaf(V, wide), Leaf(U, wide)]
        return leaves, ["mul", ["load", U, 2], ["softmax", ["scale", ["dot", ["load", U, 0], ["load", V, 1]], 0.2]]]
    leaves = [Leaf(U, wide), Leaf(V, wide), Leaf(P, ())]  # cosine
    dots: Program = ["mul", ["param", 2], ["dot", ["load", U, 0], ["load", V, 1]]]
    return leaves, ["mul", ["load", U, 0], ["softmax", ["scale", dots, 0.2]]]
