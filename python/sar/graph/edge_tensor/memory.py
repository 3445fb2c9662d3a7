"""Edge tensors that share memory: what is written into a view is seen in the tensor that it is a view of, and the other
way round, as with other tensors of torch.

Edge tensors have no memory until they are computed. So a tensor that a view function of torch made remembers the tensor
that it is a view of. What is written into it is put into that tensor as well, which counts its changes; other views of
it are made anew when they are next used. Where a number of a view lies is read off a tensor of positions, on which the
same view functions are called.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor

from . import rowwise
from .base import BaseEdgeTensor, View, values
from .nested import mapped


def remember(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], made: Any) -> None:
    """Takes note that a function may have given views of its first argument."""
    if func not in VIEWS:
        return
    of: Any = args[0] if args else kwargs.get("input")
    if not isinstance(of, BaseEdgeTensor) or (func in DROPOUT and _draws(args, kwargs)):
        return
    func = Tensor.detach if func == DATA else func  # torch does not count what is written through .data
    several = isinstance(made, (tuple, list))
    with torch._C.DisableTorchFunctionSubclass():
        for place, one in enumerate(made if several else (made,)):
            if isinstance(one, BaseEdgeTensor) and one is not of:
                apart = of.requires_grad and not one.requires_grad
                one._view = View(of, func, args, kwargs, place if several else None, apart)
                if _two_rows(one) is None:
                    one._view = None
                one._seen = _root(one)._changes


def refresh(tensor: BaseEdgeTensor) -> None:
    """Takes over what was written into the memory of a tensor since it was last used.

    :raises RuntimeError: that was done through a view without gradients, of a value that has gradients
    """
    if tensor._view is not None:
        refresh(tensor._view.of)
    root = _root(tensor)
    if root._lost:
        raise RuntimeError(
            "a tensor of edges is read after a view of it without gradients (detach(), .data, torch.no_grad()) was "
            "changed in place by a value that has gradients: clone() the view before it is changed"
        )
    value = tensor._value
    if value is not None and value._version != tensor._version_of_value:
        tensor._value, tensor._version_of_value = None, value._version
        with torch.set_grad_enabled(value.requires_grad):
            wrote(tensor, value)
        tensor._value = value
    elif tensor._view is not None and tensor._seen != root._changes:
        tensor._seen = root._changes
        places = _positions(tensor)
        with torch.set_grad_enabled(_apart(tensor) is None):
            _put(tensor, _read(root, places))


def wrote(tensor: BaseEdgeTensor, value: Tensor) -> None:
    """Has a tensor, and what it is a view of, take over a value of its shape.

    :raises RuntimeError: several of its numbers lie in one place
    """
    if tensor._view is None:
        _put(tensor, _without_gradients(tensor, value))
        tensor._changes += 1
        return
    places = _positions(tensor)
    if len(places.unique()) < places.numel():
        raise RuntimeError("a tensor of edges that was expanded cannot be changed in place: clone() it first")
    root, apart = _root(tensor), _apart(tensor)
    if apart is not None and value.requires_grad:  # the others have that value, and not its gradients
        root._lost, apart._view, apart._changes = True, None, root._changes + 1
        wrote(tensor, value)
        return
    if apart is None:
        _put(root, _without_gradients(root, _written(root, places, value)))
    else:
        without: Any = root.detach()
        _put(root, root._rewritten(_written(without, places, value)))
    root._changes += 1
    tensor._seen = root._changes
    _put(tensor, value)


def _put(tensor: BaseEdgeTensor, value: Tensor) -> None:
    """Has a tensor, and what was made of its values outside, take over a value."""
    kept = tensor.kept_value()
    if kept is None:
        tensor._take(value)
        return
    tensor._keep_what_was_read()
    with torch.set_grad_enabled(value.requires_grad or torch.is_grad_enabled()):
        kept.copy_(values(value))
    tensor._take(kept)
    tensor._value, tensor._version_of_value = kept, kept._version


def contiguous(tensor: BaseEdgeTensor) -> bool:
    """Whether a tensor would be contiguous if it had its memory."""
    found = _two_rows(tensor)
    return found is None or found.is_contiguous()


def writes_itself(args: Tuple[Any, ...]) -> bool:
    """Whether ``x[index] = value`` writes what is there: Python ends ``x[index] *= 2`` so, where ``x[index]`` is a
    view."""
    x, index, value = args
    view = value._view if isinstance(value, BaseEdgeTensor) else None
    if view is None or view.of is not x or view.func is not Tensor.__getitem__:
        return False
    return _same_index(view.args[1], index)


def _same_index(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_index, a, b))
    return a is b or (isinstance(a, (int, slice)) and type(a) is type(b) and a == b)


def _without_gradients(tensor: BaseEdgeTensor, value: Tensor) -> Tensor:
    """What is written without recording gradients leaves those of the tensor as they are."""
    return tensor._rewritten(value) if tensor.requires_grad and not torch.is_grad_enabled() else value


def rewritten(old: Tensor, new: Tensor) -> Tensor:
    """The second tensor's values, and the first one's gradient."""
    found = old.clone()
    with torch.no_grad():
        found.copy_(new)
    return found


# ---- where numbers lie -----------------------------------------------------------


def _root(tensor: BaseEdgeTensor) -> BaseEdgeTensor:
    while tensor._view is not None:
        tensor = tensor._view.of
    return tensor


def _apart(tensor: BaseEdgeTensor) -> Optional[BaseEdgeTensor]:
    """The tensor without gradients that it is, or is a view of; None where gradients go all the way."""
    while tensor._view is not None:
        if tensor._view.apart:
            return tensor
        tensor = tensor._view.of
    return None


def _positions(tensor: BaseEdgeTensor) -> Tensor:
    """Where each number of a row lies in a row of the tensor that it is a view of, int64 ``[1, ...]``"""
    found = _two_rows(tensor)
    assert found is not None
    return found[:1]


def _two_rows(tensor: BaseEdgeTensor) -> Optional[Tensor]:
    """The same view of two rows that hold where their numbers lie, int64 ``[2, ...]``; None where it is a copy.

    Two, because torch takes a tensor of one row, or of none, to be contiguous where those of more rows are copied.
    """
    view = tensor._view
    if view is None:
        return torch.arange(2 * tensor.shape[1:].numel()).view(2, *tensor.shape[1:])
    inner = _two_rows(view.of)
    call = None if inner is None else rowwise.find(view.func, view.args, view.kwargs, tensor.shape[0])
    if call is None:
        return None

    def given(leaf: Any) -> Any:
        if leaf is view.of:
            return inner
        return torch.empty(2, *leaf.shape[1:]) if call.edge(leaf) or id(leaf) in call.of_edges else leaf

    try:
        found = call.func(*mapped(call.args, given), **mapped(call.kwargs, given))
    except Exception:  # a function that gives views of some arguments only, and not of these
        return None
    found = found if view.place is None else found[view.place]
    assert inner is not None
    return found if found.untyped_storage().data_ptr() == inner.untyped_storage().data_ptr() else None


def _rows(tensor: Any) -> Tensor:
    """``[edges, numbers]``"""
    rows: Tensor = tensor.reshape(tensor.shape[0], tensor.shape[1:].numel())
    return rows


def _read(root: BaseEdgeTensor, places: Tensor) -> Tensor:
    flat = places.flatten()
    rows: Tensor = root if _in_order(flat, root) else _rows(root).index_select(1, flat)
    return rows.reshape(root.shape[0], *places.shape[1:])


def _written(root: BaseEdgeTensor, places: Tensor, value: Tensor) -> Tensor:
    flat = places.flatten()
    rows = value if _in_order(flat, root) else _rows(root).index_copy(1, flat, _rows(value))
    return rows.reshape(root.shape)


def _in_order(places: Tensor, root: BaseEdgeTensor) -> bool:
    return torch.equal(places, torch.arange(root.shape[1:].numel()))


def _functions() -> Iterator[Any]:
    names = """view reshape flatten unflatten squeeze unsqueeze expand expand_as broadcast_to view_as reshape_as
        transpose swapaxes swapdims movedim moveaxis permute t select narrow split chunk tensor_split split_with_sizes
        unbind diagonal unfold detach contiguous positive dropout __getitem__ __pos__"""
    for name in names.split():
        for home in (torch, Tensor, torch.nn.functional):
            if hasattr(home, name):
                yield getattr(home, name)
    for name in ("T", "mT", "H", "mH", "data", "real"):
        yield getattr(Tensor, name).__get__


VIEWS = frozenset(_functions())
"""Functions whose results may lie in the memory of their first argument."""
DATA = Tensor.data.__get__  # type: ignore[attr-defined]
DROPOUT = frozenset((torch.dropout, torch.nn.functional.dropout))


def _draws(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether dropout drops numbers: else it gives what it gets."""
    return bool(kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True)))
