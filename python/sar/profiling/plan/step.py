"""The memory of one training step of layers that follow one another."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Set

from sar.autograd.fused.costs import LayerCost


class Step(NamedTuple):
    """What a training step takes, in numbers per own row where nothing else is said."""

    parameters: int
    """Numbers in all."""
    exchanged: int
    """Per boundary row, in both passes."""
    saved: int
    """Kept between the passes, and the last result."""
    peak: int
    """At the heaviest moment, that included. The input is not."""


def training_step(layers: Sequence[LayerCost], width: int) -> Step:
    """What a step takes of an input of that width, which needs no gradient.

    As in autograd, rows are alive until the layer that reads them has ended and no layer saves them, and a gradient is
    from the layer that makes it to the one that takes it.
    """
    results = [width, *(layer.result for layer in layers)]  # rows by the number of the layer that made them
    begin = next((i for i, layer in enumerate(layers) if layer.parameters), len(layers))  # the first that saves
    saves: List[Set[int]] = [set() for _ in layers]
    recomputing = -1

    def alive(row: int, until: int) -> int:
        """A row, and what the layers before one save."""
        rows = {row}.union(*saves[:until]) - {0}
        return sum(results[r] for r in rows) + sum(layer.saved for layer in layers[begin:until])

    peak = 0
    for i, layer in enumerate(layers):
        again = layer.recomputes and i > 0 and layers[i - 1].normalizes
        if again and recomputing >= 0:  # the last such layer alone holds its input too
            saves[recomputing].discard(recomputing)
        peak = max(peak, alive(i, i) + max(layer.scratch, layer.saved if i >= begin else 0) + layer.result)
        if i >= begin:
            saves[i] = {row for row, saved in ((i, layer.saves_input), (i + 1, layer.saves_result)) if saved}
        if again:
            saves[i].add(i - 1)
            recomputing = i
    last = len(layers)
    for i in range(begin, last):
        layer = layers[i]
        gradients = layer.result + (results[i] if i > begin else 0)
        beside = layer.scratch if layer.scratch_backward is None else layer.scratch_backward
        peak = max(peak, alive(last, i + 1) + gradients + beside)
    exchanged = sum(layer.exchanged for layer in layers)
    return Step(sum(layer.parameters for layer in layers), exchanged, alive(last, last), peak)
