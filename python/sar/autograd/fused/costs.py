"""What the fused layers take. Needs no torch: plans are made without it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple


class LayerCost(NamedTuple):
    """The cost of a fused layer: numbers per local row, except for ``parameters`` and ``exchanges``.

    ``parameters``: numbers in all; ``exchanges``: of each in forward, numbers per boundary row, and whether as many
    return in backward; ``result``: of its output; ``saves_result``: whether that is saved for backward; ``saved``: what
    is saved besides the input; ``scratch``: what only the computation takes, in either pass; ``scratch_backward``: in
    backward besides the gradient of the input, ``None`` where that is the same.
    """

    parameters: int
    exchanges: List[Tuple[int, bool]]
    result: int
    saved: int
    scratch: int
    saves_result: bool = False
    scratch_backward: Optional[int] = None


def sage(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """What :func:`sar.autograd.fused.scaled_product.sage_mean` takes. ``grad_x``: whether x needs a gradient."""
    first = product_first(in_features, out_features)
    narrower, back = min(in_features, out_features), grad_x or first
    saves_mean = not first and not (grad_x and offers_gradient(in_features, out_features))
    one_pass = first and not grad_x  # the mean beside the product with W_self
    return LayerCost(
        parameters=2 * in_features * out_features + out_features,
        exchanges=[(narrower, back)],
        result=out_features,
        saved=in_features if saves_mean else 0,
        scratch=2 * narrower if one_pass else narrower if back else 0,
        scratch_backward=narrower if one_pass else None,
    )


def product_first(in_features: int, out_features: int) -> bool:
    """Whether the product with W_neigh comes before the mean, which then is of fewer columns."""
    return in_features > out_features


def offers_gradient(in_features: int, out_features: int) -> bool:
    """Whether backward, after a mean before the product, does better to send g, which is no wider than g W_neigh; then
    A x need not be saved."""
    return in_features >= out_features


def gat(in_features: int, heads: int, each: int, grad_x: bool) -> LayerCost:
    """What :func:`sar.autograd.fused.gat.attend` takes, without the bias. ``grad_x``: whether x needs a gradient."""
    width = heads * each
    grad = in_features if grad_x else 0
    return LayerCost(
        parameters=in_features * width + 3 * width,
        exchanges=[(width + heads, True), (width + heads, False)],  # sources are fetched again in backward
        result=width,
        saved=4 * heads,  # both scores, and maximum and sum of the softmax
        scratch=width,
        saves_result=True,
        scratch_backward=max(2 * width - grad, width),
    )


def gat_by_columns(in_features: int, heads: int, each: int, merge: Optional[str]) -> LayerCost:
    """What :func:`sar.autograd.fused.gat_columns.attend` takes."""
    width, block = heads * each, columns(in_features, heads, each, merge)
    moved = width + heads * blocks_of_columns(each, block)
    return LayerCost(
        parameters=in_features * width + 3 * width,
        # in backward sources are fetched to recompute the sum, and for gradients
        exchanges=[(moved, True), (moved, False), (moved, False)],
        result=each if merge == "mean" else width,
        saved=0,
        scratch=2 * heads + 2 * block,
        # scores and their gradients; of a block: W x, the sum, and a gradient of each
        scratch_backward=4 * heads + 4 * block,
    )


def columns(in_features: int, heads: int, each: int, merge: Optional[str]) -> int:
    """Columns of a block: two such blocks are about an eighth of input and result together."""
    about = max(16, (in_features + (each if merge == "mean" else heads * each)) // 16)
    return -(-each // max(1, round(each / about)))


def blocks_of_columns(each: int, step: int) -> int:
    """Into how many blocks of up to ``step`` columns a head is cut."""
    return -(-each // step)
