"""What layers send, save and take: read by ``sar plan``, ``sar.estimate_memory`` and ``sar.describe``.

Needs no torch: plans are made without it.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple


class Cover(NamedTuple):
    """Rows that workers read of each other, and what can travel in place of all: some ``rows``, and partial results,
    ``sums``. Of three covers: where a partial result costs half of a row, as much, and twice as much."""

    all: int
    rows: Tuple[int, ...]
    sums: Tuple[int, ...]

    def share(self, row: float, partial: float) -> float:
        """The share of the bytes of all rows that travels where a row and a partial result take so many: that of the
        cheapest cover, or of rows alone where it saves less than 1/32."""
        bytes_of_rows = self.all * row
        if not bytes_of_rows:
            return 1.0
        least = min(r * row + s * partial for r, s in zip(self.rows, self.sums)) / bytes_of_rows
        return least if least < 31 / 32 else 1.0


class LayerCost(NamedTuple):
    """The cost of a layer, in numbers per local row where nothing else is said.

    ``grad_x`` of the functions that make it: whether the layer's input needs a gradient.
    """

    result: int
    parameters: int = 0
    """Numbers in all."""
    exchanges: Tuple[Tuple[int, bool], ...] = ()
    """Of each exchange in forward: numbers per boundary row, and whether as many return in backward."""
    saves_input: bool = False
    saves_result: bool = False
    saved: int = 0
    """What is saved besides input and result."""
    scratch: int = 0
    """What the computation takes besides input and result, or besides their gradients; what is saved is in it."""
    scratch_backward: Optional[int] = None
    """In backward, where that is not the same."""
    sums_first: bool = False
    """Sums over edges end before there is a result, or in backward a gradient of the input."""
    normalizes: bool = False
    """It is a batch norm."""
    recomputes: bool = False
    """Its backward can compute its input anew where a batch norm made that."""
    partials: Optional[Tuple[float, float]] = None
    """Numbers that travel for a partial result in place of rows, forward and for gradients. None: those of the row."""
    scores: int = 0
    """Of the numbers of an exchange, those of attention's scores, which autocast leaves in float32."""
    promotes: Optional[bool] = None
    """Whether its result is float32 under autocast, as products of rows with factors are. None: it has the type of the
    input."""

    @property
    def exchanged(self) -> int:
        """Numbers that are sent for each boundary row in both passes."""
        return sum(count * (2 if back else 1) for count, back in self.exchanges)

    def sent(self, item: int, cover: Optional[Cover] = None) -> float:
        """Bytes that are sent for each boundary row in both passes. Partial results and sums of gradients are float32
        at least.

        :param item: bytes of a number of the rows
        :param cover: of the workers; None: all rows travel
        """
        if not self.exchanges:
            return 0.0
        wide = max(item, 4)
        rows = [count * item + self.scores * (wide - item) for count, _ in self.exchanges]
        gradients = sum(count * wide for count, returns in self.exchanges if returns)
        if len(rows) > 1:  # the last one is fetched for gradients
            gradients += rows.pop()
        forth, back = (n * wide for n in self.partials or (self.exchanges[0][0],) * 2)
        if self.partials is None:  # rows of gradients
            back = back * item / wide
        if cover is None:
            return float(sum(rows) + gradients)
        return sum(row * cover.share(row, forth) for row in rows) + gradients * cover.share(gradients, back)


def elementwise(width: int, saves: str = "") -> LayerCost:
    """An activation or another function of single numbers, which saves its ``"input"``, its ``"result"`` or, as
    dropout does, a ``"mask"`` of the type of the numbers."""
    return LayerCost(
        width, saves_input=saves == "input", saves_result=saves == "result", saved=width if saves == "mask" else 0
    )


def norm(width: int, over_rows: bool = False) -> LayerCost:
    """Layer norm, or batch norm: alone, or with the activation and dropout after it."""
    return LayerCost(width, parameters=2 * width, saves_input=True, normalizes=over_rows)


def linear(in_features: int, out_features: int) -> LayerCost:
    parameters = (in_features + 1) * out_features
    return LayerCost(out_features, parameters=parameters, saves_input=True, promotes=False)


def neighbour_sum(width: int, grad_x: bool) -> LayerCost:
    """Without scratch."""
    return LayerCost(width, exchanges=((width, grad_x),))


def gin(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """The sum over neighbours and the row itself, and a product."""
    return LayerCost(
        out_features,
        parameters=(in_features + 1) * out_features,
        exchanges=((in_features, grad_x),),
        saved=in_features,
        promotes=False,
        scratch=2 * in_features,
        scratch_backward=max(0, in_features - out_features) if grad_x else 0,
    )


def gcn(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """A mean by degrees of both ends, and the product, whichever is of fewer columns first. Rows scaled are saved, and
    the factors."""
    first = product_first(in_features, out_features)
    return LayerCost(
        out_features,
        parameters=(in_features + 1) * out_features,
        exchanges=((out_features, True) if first else (in_features, grad_x),),
        saved=in_features + 1 + grad_x,
        promotes=True,
        scratch=in_features + (3 if first else 2) * out_features + (0 if first else in_features),
        scratch_backward=max(0, out_features - (in_features if grad_x else 0)),
    )


def gcn_product_first(in_features: int, out_features: int) -> LayerCost:
    """PyG's: the product, then the sum, whatever the widths. Without scratch."""
    return LayerCost(
        out_features,
        parameters=(in_features + 1) * out_features,
        exchanges=((out_features, True),),
        saves_input=True,
        promotes=True,
    )


def sage_gcn(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """The mean of neighbours and the row itself, and one product."""
    first = product_first(in_features, out_features)
    grad = in_features if grad_x else 0
    return LayerCost(
        out_features,
        parameters=(in_features + 1) * out_features,
        exchanges=((out_features, True) if first else (in_features, grad_x),),
        saves_input=first,
        promotes=False,
        saved=1 if first else in_features + grad_x,
        scratch=4 * out_features if first else 3 * in_features + out_features,
        scratch_backward=max(0, 2 * out_features - grad if first else grad - out_features),
    )


def sage(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """What :func:`sar.autograd.fused.scaled_product.sage_mean` takes."""
    first = product_first(in_features, out_features)
    narrower, back = min(in_features, out_features), grad_x or first
    saves_mean = not first and not (grad_x and offers_gradient(in_features, out_features))
    one_pass = first and not grad_x  # the mean beside the product with W_self
    return LayerCost(
        out_features,
        parameters=2 * in_features * out_features + out_features,
        exchanges=((narrower, back),),
        saves_input=True,
        saved=in_features if saves_mean else 0,
        promotes=False,
        scratch=2 * narrower if one_pass else narrower if back else 0,
        scratch_backward=narrower if one_pass else None,
        sums_first=True,
        recomputes=True,
    )


def sage_pool(in_features: int, out_features: int, grad_x: bool) -> LayerCost:
    """A product, the largest of its rows, whose edges are saved as numbers of 4 bytes, and both products."""
    return LayerCost(
        out_features,
        parameters=(in_features + 1) * in_features + 2 * in_features * out_features + out_features,
        exchanges=((in_features, True),),
        partials=(1.25 * in_features, 1.25 * in_features),  # a byte says which edge it is
        saves_input=True,
        saved=3 * in_features,
        scratch=4 * in_features,
        scratch_backward=2 * in_features,
    )


def sage_steps(in_features: int, out_features: int, grad_x: bool, product_first: bool) -> LayerCost:
    """The mean and both products one after the other. Without scratch."""
    return LayerCost(
        out_features,
        parameters=2 * in_features * out_features + out_features,
        exchanges=((out_features, True) if product_first else (in_features, grad_x),),
        saves_input=True,
        saved=0 if product_first else in_features,
        promotes=False,
    )


def product_first(in_features: int, out_features: int) -> bool:
    """Whether the product with W_neigh comes before the mean, which then is of fewer columns."""
    return in_features > out_features


def holds_rows(results: int, width: int) -> bool:
    """Whether the last layer holds rows of ``width`` that it could recompute. Its backward takes four times its results
    in gradients. Where that is more than the rows, it is the busiest moment, and rows that are held come on top."""
    return 4 * results <= width


def offers_gradient(in_features: int, out_features: int) -> bool:
    """Whether backward, after a mean before the product, does better to send g, which is no wider than g W_neigh; then
    A x need not be saved."""
    return in_features >= out_features


def gat(in_features: int, heads: int, each: int, grad_x: bool) -> LayerCost:
    """What :func:`sar.autograd.fused.gat.attend` takes, and the bias."""
    width = heads * each
    grad = in_features if grad_x else 0
    return LayerCost(
        width,
        parameters=in_features * width + 3 * width,
        exchanges=((width + heads, True), (width + heads, False)),  # sources are fetched again in backward
        partials=(width + 3 * heads, width + 5 * heads),  # scores and the softmax's state; its products, their gradient
        scores=heads,
        promotes=False,
        saves_input=True,
        saved=4 * heads + width,  # both scores, maximum and sum of the softmax, and the result before the bias
        scratch_backward=max(2 * width - grad, width),
        recomputes=True,
    )


def gatv2(in_features: int, heads: int, each: int, grad_x: bool) -> LayerCost:
    """The engine keeps maximum and sum per row and head, not what is per edge."""
    width = heads * each
    grad = in_features if grad_x else 0
    saved = 3 * width + 3 * heads  # both products, the result before the bias
    return LayerCost(
        width,
        parameters=2 * in_features * width + 3 * width,
        exchanges=((width, True), (width, False)),  # fetched again in backward
        partials=(2 * width + 2 * heads, 3 * width + 3 * heads),
        promotes=True,
        saves_input=True,
        saved=saved,
        scratch_backward=max(2 * width - grad, grad - saved),
    )


def gat_by_columns(in_features: int, heads: int, each: int, merge: Optional[str]) -> LayerCost:
    """What :func:`sar.autograd.fused.gat_columns.attend` takes."""
    width, block = heads * each, columns(in_features, heads, each, merge)
    moved = width + heads * blocks_of_columns(each, block)
    return LayerCost(
        each if merge == "mean" else width,
        parameters=in_features * width + 3 * width,
        # in backward sources are fetched to recompute the sum, and for gradients
        exchanges=((moved, True), (moved, False), (moved, False)),
        partials=(3 * moved - 2 * width, 5 * moved - 4 * width),
        scores=moved - width,
        promotes=False,
        saves_input=True,
        scratch=2 * heads + 2 * block,
        # scores and their gradients; of a block: W x, the sum, and a gradient of each
        scratch_backward=4 * heads + 4 * block,
        recomputes=True,
    )


def columns(in_features: int, heads: int, each: int, merge: Optional[str]) -> int:
    """Columns of a block: two such blocks are about an eighth of input and result together."""
    about = max(16, (in_features + (each if merge == "mean" else heads * each)) // 16)
    return -(-each // max(1, round(each / about)))


def blocks_of_columns(each: int, step: int) -> int:
    """Into how many blocks of up to ``step`` columns a head is cut."""
    return -(-each // step)
