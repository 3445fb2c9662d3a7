"""The memory of one training step of layers that follow one another."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Set

from sar.autograd.fused.costs import Cover, LayerCost, holds_rows


class Step(NamedTuple):
    """What a training step takes, in bytes per own row where nothing else is said."""

    parameters: int
    """Numbers in all."""
    exchanged: int
    """Numbers per boundary row, in both passes."""
    sent: float
    """Per boundary row, in both passes."""
    saved: int
    """Kept between the passes, and the last result."""
    peak: int
    """At the heaviest moment, that included. The input is not."""


def training_step(
    layers: Sequence[LayerCost], width: int, item: int, parts: int, cover: Optional[Cover] = None
) -> Step:
    """What a step takes of an input of that width, which needs no gradient.

    :param item: bytes of a number that is stored; with 2, results that promote have 4
    :param parts: workers
    :param cover: as :meth:`LayerCost.sent` takes it

    As in autograd, rows are alive until the layer that reads them has ended and no layer saves them, and a gradient is
    from the layer that makes it to the one that takes it.
    """
    items = [item]  # bytes of a number, then bytes, of rows by the number of the layer that made them
    for layer in layers:
        items.append(items[-1] if layer.promotes is None else max(item, 4) if layer.promotes else item)
    results = [count * size for count, size in zip((width, *(layer.result for layer in layers)), items)]
    layers = [_in_bytes(layer, items[i] if layer.promotes is None else item) for i, layer in enumerate(layers)]
    begin = next((i for i, layer in enumerate(layers) if layer.parameters), len(layers))  # the first that saves
    saves: List[Set[int]] = [set() for _ in layers]
    recomputing = -1

    def alive(row: int, until: int) -> int:
        """A row, and what the layers before one save."""
        rows = {row}.union(*saves[:until]) - {0}
        return sum(results[r] for r in rows) + sum(layer.saved for layer in layers[begin:until])

    # sums over edges are float32 until all workers have added to them, and then rounded where they lie; so are
    # attention's in forward
    wide = [(4 - item) * (item < 4 and (parts > 1 or len(layer.exchanges) > 1)) for layer in layers]
    sums = [size * max([0, *(n for n, _ in layer.exchanges)]) for size, layer in zip(wide, layers)]
    wide_back = (4 - item) * (item < 4 and parts > 1)
    back = [wide_back * max([0, *(n for n, back in layer.exchanges if back)]) for layer in layers]
    peak = 0
    for i, layer in enumerate(layers):
        again = layer.recomputes and i > 0 and layers[i - 1].normalizes
        if again and recomputing >= 0:  # the last such layer alone holds its input too
            saves[recomputing].discard(recomputing)
        made = results[i + 1]
        beside = layer.scratch + (max(sums[i] - made, 0) if layer.sums_first else sums[i])
        peak = max(peak, alive(i, i) + max(beside, layer.saved if i >= begin else 0) + made)
        if i >= begin:
            saves[i] = {row for row, saved in ((i, layer.saves_input), (i + 1, layer.saves_result)) if saved}
        if again:
            saves[i].add(i - 1)
            recomputing = i
            if not holds_rows(layer.result, layers[i - 1].result):
                saves[i].discard(i)
    last = len(layers)
    for i in range(begin, last):
        layer = layers[i]
        own = results[i] if i > begin else 0
        beside = layer.scratch if layer.scratch_backward is None else layer.scratch_backward
        gradients = results[i + 1] + (max(own, back[i]) if layer.sums_first else own + back[i])
        peak = max(peak, alive(last, i + 1) + gradients + beside)
    parameters, exchanged = (sum(of) for of in zip(*((one.parameters, one.exchanged) for one in layers)))
    return Step(parameters, exchanged, sum(layer.sent(item, cover) for layer in layers), alive(last, last), peak)


def _in_bytes(layer: LayerCost, item: int) -> LayerCost:
    """A layer that saves and takes bytes."""
    backward = None if layer.scratch_backward is None else layer.scratch_backward * item
    return layer._replace(saved=layer.saved * item, scratch=layer.scratch * item, scratch_backward=backward)
