"""Rows that a prepared layer is given in every step, as features are.

Most models read features in their first layer, and no step changes them. From the second call with the same rows on, a
prepared layer keeps what it computes of them alone, as far as it saves that for backward anyway
(:meth:`Constant.kept`): later steps neither compute nor send it. If few of their numbers are not zero, as in a bag of
words, its products read these alone (:class:`Sparse`).

The same rows are those of the same memory, which torch has counted no change of, and with the same checksum: what a
script changes through ``x.data`` or numpy, torch does not count. Rows in a file have no place in memory, so nothing is
kept of them.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from sar._engine import columns, library, mappings
from sar._engine.native import Native
from sar._engine.storage import computed_in
from sar.distributed.agreement import anywhere

SPARSE = 1 / 32
"""The share of numbers other than zero up to which products read these alone. With the copy of them by columns they
take an eighth of the rows' memory at most."""


class Constant:
    """What one prepared layer keeps of the rows that it is given.

    Whether these are the same as before is known to each worker by itself; whether something is neither computed nor
    sent, all workers agree on in each call. A layer that is computed again in backward gets what it got in forward.
    """

    def __init__(self) -> None:
        self._memory: Any = None
        self._layout: Optional[Tuple[Any, ...]] = None
        self._checksum: Optional[int] = None
        self._sparse: Optional[Sparse] = None
        self._again = False
        self._of: Optional[Tuple[Any, ...]] = None
        self._given: Optional[Tensor] = None
        self._kept: Optional[Tensor] = None
        self._asks = True

    def sparse(self, x: Tensor) -> Optional[Sparse]:
        """Looks at the rows of this call. What stands for them in products; None: they do themselves."""
        layout = _layout(x)
        there = layout is not None and layout == self._layout and not self._memory.expired()
        if _in_backward():
            self._again = there
            return self._sparse if there else None
        if there and self._checksum is not None and self._sparse is None and (self._of is None or not self._asks):
            return None  # nothing is kept that a change would make wrong
        checksum = columns.checksum(x) if there else None
        if checksum is None or self._checksum not in (None, checksum):
            self._checksum = self._sparse = None
        else:
            self._sparse = Sparse.of(x) if self._checksum is None else self._sparse
            self._checksum = checksum
        self._memory, self._layout = None if layout is None else StorageWeakRef(x.untyped_storage()), layout
        self._again = layout is not None and (self._checksum is not None or not x.numel())
        return self._sparse

    def kept(self, of: Tuple[Any, ...], make: Callable[[], Tensor]) -> Optional[Tensor]:
        """What ``make`` gives of the rows of this call (:meth:`sparse`), once; it must not be changed. None in the
        first call, and where rows are others than in the last one on any worker: then ``make`` is never called again.
        Collective, and so is ``make``.

        :param of: what the result depends on besides. Where any worker has another than in its first call, this gives
            None, and keeps what it has
        """
        if _in_backward():
            return self._given if self._again else None
        self._given = self._agreed(of, make)
        return self._given

    def _agreed(self, of: Tuple[Any, ...], make: Callable[[], Tensor]) -> Optional[Tensor]:
        if self._of is None:
            self._of = of
            return None
        if not self._asks:
            return None
        others, elsewhere = anywhere(not self._again, of != self._of)
        if others:
            self._asks, self._kept = False, None
        elif not elsewhere and self._kept is None:
            with torch.inference_mode(False), torch.no_grad():
                self._kept = make()
        return None if elsewhere else self._kept

    def missed(self) -> None:
        """Takes the place of :meth:`kept` in a call that runs steps on this worker. Collective."""
        self._again = False
        self.kept((None,), torch.Tensor)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _layout(x: Tensor) -> Optional[Tuple[Any, ...]]:
    """What rows have in common with others of the same memory that are the same; None: nothing is kept of them, as of
    those that something computes later, from parameters that change."""
    plain = type(x) is Tensor and x.is_contiguous() and not x.is_inference() and mappings.map_of(x) is None
    if not plain or (x.requires_grad and torch.is_grad_enabled()):
        return None
    return x.data_ptr(), x.shape, x.dtype, x._version


class Sparse:
    """Rows ``[n, i]`` by their numbers other than zero."""

    def __init__(self, x: Tensor) -> None:
        rows, places = x.nonzero().unbind(1)
        values = x[rows, places].to(computed_in(x.dtype))
        turned = places.argsort(stable=True)
        self._by_rows = _Matrix(rows, places, values, x.shape)
        self._by_columns = _Matrix(places[turned], rows[turned], values[turned], x.shape[::-1])

    @classmethod
    def of(cls, x: Tensor) -> Optional[Sparse]:
        """None: too many numbers are not zero."""
        return cls(x) if int(x.count_nonzero()) <= SPARSE * x.numel() else None

    def products(self, *weights: Tensor) -> List[Tensor]:
        """``x W'`` for each W ``[o, i]``, in its dtype. Of bfloat16 rows are rounded to it first, as by torch, and sums
        are float32."""
        return [self._by_rows.times(w.t(), w.dtype).to(w.dtype) for w in weights]

    def sums(self, *factors: Tensor) -> List[Tensor]:
        """``f' x``, ``[o, i]``, for each f ``[n, o]``. Of factors of bfloat16 it is in float32."""
        return [self._by_columns.times(f, f.dtype).t().contiguous() for f in factors]


class _Matrix(Native):
    """A sparse matrix of the engine, of entries that are sorted by rows."""

    def __init__(self, rows: Tensor, places: Tensor, values: Tensor, shape: Tuple[int, ...]) -> None:
        ends = torch.zeros(shape[0] + 1, dtype=torch.int64)
        torch.cumsum(rows.bincount(minlength=shape[0]), 0, out=ends[1:])
        self._rows, self._values = shape[0], None if bool((values == 1).all()) else values
        self._handle: int = library.call("sar_matrix_create", ends, places.int(), shape[1])
        self._own(library.calls("sar_matrix_free"), self._handle)

    def times(self, other: Tensor, dtype: torch.dtype) -> Tensor:
        """The product with ``[columns, o]``, whose dtype entries are rounded to; in the dtype that is computed in."""
        other = other.to(computed_in(dtype)).contiguous()
        out = other.new_empty(self._rows, other.shape[1])
        values = self._values if self._values is None else self._values.to(dtype).to(out.dtype)
        library.call("sar_matrix_spmm", self._handle, values, other, out)
        return out
