"""What must hold of the arguments of functions of torch, so that they treat each edge by itself.

A rule is a function of :class:`Arguments`. It notes which of the other tensors have a row for each edge, and says
whether the call works row by row. Rules look at the places of dimensions, not at numbers of rows that happen to be
equal.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .base import BaseEdgeTensor
from .count import EdgeCount
from .nested import tensors

ROWS = 1009
"""Rows of edges in tensors without data: a prime number, which no size is a multiple of by chance."""


class Arguments:
    """Arguments of a call of a function of torch, tensors of edges among them.

    :ivar name: of the function in the table
    :ivar args: arguments; rules may put equivalent ones in their places, which hold for any number of edges
    :ivar of_edges: other tensors that have a row for each edge, by id
    """

    def __init__(self, name: str, func: Any, args: List[Any], kwargs: Dict[str, Any], edges: int) -> None:
        self.name, self.func, self.args, self.kwargs, self.edges = name, func, args, kwargs, edges
        self.of_edges: Dict[int, Tensor] = {}

    def named(self, names: Sequence[str]) -> Dict[str, Any]:
        """Arguments by name; the last name may stand for all that follow, with a star in front."""
        given = dict(zip(names, self.args))
        if names and names[-1][0] == "*":
            rest = self.args[len(names) - 1 :]
            given.pop(names[-1], None)
            if rest:
                given[names[-1][1:]] = rest[0] if len(rest) == 1 else rest
        for key, value in self.kwargs.items():
            given["dim" if key == "axis" else names[0] if key in ("input", "self") and names else key] = value
        return given

    def sizes(self) -> Optional[List[int]]:
        """All but the first argument, see :func:`sizes_of`."""
        return sizes_of(self.args[1:], self.kwargs)

    def set_sizes(self, sizes: Sequence[int]) -> bool:
        """Puts others in their place."""
        self.args, self.kwargs = [self.args[0], tuple(sizes)], {}
        return True

    def edge(self, value: Any) -> bool:
        """Whether it is a tensor of edges."""
        return isinstance(value, BaseEdgeTensor)

    def has_edges(self, tree: Any) -> bool:
        """Whether a tensor of edges is in it."""
        return any(self.edge(t) for t in tensors(tree))

    def aligned(self, tensor: Tensor, n: int) -> bool:
        """Whether a tensor, broadcast to ``n`` dimensions of which the first is that of edges, has rows of edges, or is
        the same for all of them."""
        if self.edge(tensor):
            return tensor.dim() == n
        if tensor.dim() < n:
            return tensor.layout is torch.strided
        if tensor.dim() > n or tensor.shape[0] not in (1, self.edges):
            return False
        if tensor.shape[0] == self.edges:
            self.of_edges[id(tensor)] = tensor
        return tensor.layout is torch.strided

    def broadcast(self, operands: Any) -> int:
        """The number of dimensions that operands are broadcast to; 0 where that of edges does not stay the first."""
        found = tensors(operands)
        n = max((t.dim() for t in found), default=0)
        fits = any(self.edge(t) for t in found) and all([self.aligned(t, n) for t in found])
        return n if fits else 0


def sizes_of(args: Sequence[Any], kwargs: Dict[str, Any]) -> Optional[List[int]]:
    """Arguments that are integers, one by one or in a sequence; None where they are none."""
    given: Any = [*args, *kwargs.values()]
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    return list(given) if all(isinstance(size, int) for size in given) else None


def dims_of(value: Any, n: int) -> Tuple[int, ...]:
    """Dimensions counted from the front; none where all are meant, or some do not exist."""
    given = value if isinstance(value, (tuple, list)) else (value,)
    if any(type(d) is not int or not -n <= d < n for d in given):
        return ()
    return tuple(d % n for d in given)


def pointwise(call: Arguments) -> bool:
    return call.broadcast([call.args, call.kwargs]) > 0


def where(call: Arguments) -> bool:
    return len(call.args) + len(call.kwargs) == 3 and pointwise(call)


def cast(call: Arguments) -> bool:
    """Conversions: other tensors say which dtype."""
    for value in [*call.args[1:], *call.kwargs.values()]:
        device = value.device if isinstance(value, Tensor) else value
        if isinstance(device, (str, torch.device)) and (str(device)[:5] == "torch" or torch.device(device) != CPU):
            return False
    others = [value for value in call.args[1:] if isinstance(value, Tensor)]
    call.args = [call.args[0], *(v.dtype if isinstance(v, Tensor) else v for v in call.args[1:] if not _is_cpu(v))]
    call.kwargs = {k: v for k, v in call.kwargs.items() if not _is_cpu(v) and not isinstance(v, Tensor)}
    if call.func is Tensor.type_as:
        call.func = Tensor.to
    return call.edge(call.args[0]) and len(call.args) > 1 and len(others) <= 1


CPU = torch.device("cpu")


def _is_cpu(value: Any) -> bool:
    return value in ("cpu", CPU) if isinstance(value, (str, torch.device)) else False


# ---- shapes ----------------------------------------------------------------------


def view(call: Arguments) -> bool:
    x, sizes = call.args[0], call.sizes()
    if not call.edge(x) or not sizes or sizes[0] not in (-1, call.edges):
        return False
    like = torch.empty((ROWS, *x.shape[1:]), device="meta")  # of no edges torch could not tell what -1 stands for
    try:
        found = like.view(-1 if sizes[0] == -1 else ROWS, *sizes[1:]).shape
    except RuntimeError:
        return False
    return found[0] == ROWS and 0 not in found and call.set_sizes([-1, *found[1:]])


def like_another(call: Arguments) -> bool:
    return all(map(call.edge, call.args)) and len(call.args) == 2


def expand(call: Arguments) -> bool:
    x, sizes = call.args[0], call.sizes()
    if not call.edge(x) or sizes is None or len(sizes) != x.dim() or sizes[0] not in (-1, call.edges):
        return False
    return call.set_sizes([-1, *sizes[1:]])


def repeat(call: Arguments) -> bool:
    x, sizes = call.args[0], call.sizes()
    if not call.edge(x) or not sizes:
        return False
    fewer = len(sizes) < x.dim() and call.func in (torch.tile, Tensor.tile)
    return fewer or (len(sizes) == x.dim() and sizes[0] == 1)


def permute(call: Arguments) -> bool:
    x, sizes = call.args[0], call.sizes()
    return call.edge(x) and bool(sizes) and len(sizes or ()) == x.dim() and dims_of(sizes, x.dim())[:1] == (0,)


def one_dimension(call: Arguments) -> bool:
    return bool(call.args[0].dim() == 1)


def squeeze(call: Arguments) -> bool:
    """Without a dimension torch also drops that of edges where a worker has one edge."""
    x = call.args[0]
    given = [*call.args[1:], *call.kwargs.values()]
    dims = dims_of(given[0], x.dim()) if given else tuple(range(1, x.dim()))
    call.args, call.kwargs = [x, dims], {}
    return call.edge(x) and (not given or bool(dims)) and 0 not in dims


def pad(call: Arguments) -> bool:
    given = call.named(("input", "pad", "mode", "value"))
    return call.edge(given["input"]) and len(given["pad"]) // 2 < given["input"].dim()


def new(call: Arguments) -> bool:
    """New tensors with a row for each edge, which ``size(0)`` of a tensor of edges asks for."""
    size = call.args[1] if len(call.args) > 1 else call.kwargs.get("size")
    sizes = size if isinstance(size, (tuple, list)) else call.args[1:]
    if not sizes or type(sizes[0]) is not EdgeCount:
        return False
    func, rest = call.func, tuple(sizes[1:])
    more = call.args[2:] if isinstance(size, (tuple, list)) else []
    options = {key: value for key, value in call.kwargs.items() if key != "size"}
    call.args, call.kwargs = call.args[:1], {}
    call.func = lambda x: func(x, (x.shape[0], *rest), *more, **options)
    call.func.__name__ = func.__name__
    return True


# ---- indices -----------------------------------------------------------------------


def _picks(call: Arguments, n: int, index: Any) -> bool:
    """Whether an index keeps the first of ``n`` dimensions in its place."""
    items = list(index) if isinstance(index, tuple) else [index]
    if call.has_edges(items) or any(isinstance(item, bool) for item in items):
        return False
    taken = [0 if i is None or i is ... else i.dim() if is_mask(i) else 1 for i in items]
    first = items[0] if items else None
    if not (isinstance(first, slice) and first == slice(None)) and not (first is ... and sum(taken) < n):
        return False
    # rows that are picked by lists of numbers come first where something lies between these lists
    places = [at for at, item in enumerate(items) if isinstance(item, (Tensor, list, tuple))]
    return not places or places[-1] - places[0] + 1 == len(places)


def is_mask(index: Any) -> bool:
    """Whether an index says of each row, or of each number, whether it is picked."""
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def getitem(call: Arguments) -> bool:
    x, index = call.args
    if call.edge(x):
        return _picks(call, x.dim(), index)
    if isinstance(index, tuple) and len(index) == 1:  # torch before 2.3 says so of a single tensor
        index = index[0]
    call.func = _row_of
    return call.edge(index) and not is_mask(index)  # rows of a table that all edges share


def _row_of(table: Tensor, index: Any) -> Tensor:
    # by the operator: before torch 2.3, modes that watch or replace tensors from outside see nothing else
    return table[index]


def setitem(call: Arguments) -> bool:
    x, index, value = call.args
    if not call.edge(x):
        return False
    if call.edge(index) and is_mask(index) and index.dim() <= x.dim():
        call.func = _fill
        return not isinstance(value, Tensor) or (not call.edge(value) and value.dim() <= x.dim() - index.dim())
    if not _picks(call, x.dim(), index):
        return False
    picked = torch.empty(tuple(x.shape), device="meta")[index].dim()
    return not isinstance(value, Tensor) or call.aligned(value, picked) or value.dim() < picked


def _fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    mask = mask.view(*mask.shape, *(1,) * (x.dim() - mask.dim()))
    return x.copy_(torch.where(mask.bool(), value, x))


def one_hot(call: Arguments) -> bool:
    given = call.named(("tensor", "num_classes"))
    return call.edge(given["tensor"]) and given.get("num_classes", -1) > 0


# ---- products ------------------------------------------------------------------------


def matmul(call: Arguments) -> bool:
    a, b = call.args if len(call.args) == 2 else (*call.args, *call.kwargs.values())
    if call.func is Tensor.__rmatmul__:
        a, b = b, a
    n = max(a.dim(), b.dim())
    if n < 3:
        return call.edge(a) and a.dim() == 2 and not call.edge(b)
    return call.broadcast([a, b]) > 0


def tensordot(call: Arguments) -> bool:
    given = call.named(("a", "b", "dims"))
    a, b, dims = given["a"], given["b"], given.get("dims", 2)
    if not call.edge(a) or call.edge(b) or isinstance(dims, Tensor):
        return False
    if isinstance(dims, int):
        return dims < a.dim()
    found = dims_of(dims[0], a.dim())
    return bool(found) and 0 not in found


def einsum(call: Arguments) -> bool:
    if not isinstance(call.args[0], str):
        return False
    operands = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (tuple, list)) else call.args[1:]
    terms, arrow, out = call.args[0].replace(" ", "").partition("->")
    subscripts = terms.split(",")
    if len(subscripts) != len(operands):
        return False
    free = [chr(c) for c in range(ord("A"), ord("Z") + 1) if chr(c) not in terms]
    dots = max((x.dim() - len(s.replace("...", "")) for s, x in zip(subscripts, operands) if "..." in s), default=0)
    names = "".join(free[:dots])
    for n, (s, x) in enumerate(zip(subscripts, operands)):
        own = x.dim() - len(s.replace("...", ""))
        subscripts[n] = s.replace("...", names[dots - own :] if own > 0 else "")
    if not arrow:
        letters = "".join(subscripts)
        out = "..." + "".join(sorted(c for c in set(letters) - set(names) if letters.count(c) == 1))
    out = out.replace("...", names)
    edge = next(s[:1] for s, x in zip(subscripts, operands) if call.edge(x))
    for s, x in zip(subscripts, operands):
        first = bool(edge) and s[:1] == edge and s.count(edge) == 1 and len(s) == x.dim()
        if (call.edge(x) or edge in s) and not (first and call.aligned(x, x.dim())):
            return False
    return out[:1] == edge


# ---- layers --------------------------------------------------------------------------


def instance_norm(call: Arguments) -> bool:
    names = ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats")
    given = call.named(names)
    writes = given.get("use_input_stats", True) and given.get("running_mean") is not None
    others = [given.get(name) for name in names[1:5]]
    return call.edge(given["input"]) and given["input"].dim() >= 3 and not writes and not call.has_edges(others)


def loss(call: Arguments) -> bool:
    """Losses of each element, or of each row. The second argument may have fewer dimensions."""
    given = call.named(("input", "target"))
    x, target = given["input"], given["target"]
    others = [value for key, value in given.items() if key not in ("input", "target")]
    if given.get("reduction") != "none" or call.has_edges(others) or not (call.edge(x) or call.edge(target)):
        return False
    return call.aligned(x, x.dim()) and call.aligned(target, target.dim()) and x.dim() > 0 and target.dim() > 0
