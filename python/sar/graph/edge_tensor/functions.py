"""Functions of torch by what they do to edge tensors."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["IN_PLACE", "LAZY", "METADATA", "OF_AUTOGRAD", "OF_HOOKS", "changes", "register", "register_in_place"]

Handler = Callable[..., Any]
"""Takes the arguments of a torch function; returns ``NotImplemented`` for arguments that the engine does not take."""

LAZY: Dict[Any, Handler] = {}
"""Torch functions that extend an expression; :mod:`sar.graph.edge_tensor.arithmetic` and its neighbour fill it."""

IN_PLACE: Dict[Any, Any] = {}
"""For each torch function that changes its first argument: the function in :data:`LAZY` that does the same."""


def register(handler: Handler, *names: str) -> None:
    """Has the handler stand for functions of these names in ``torch``, ``Tensor`` and ``torch.nn.functional``."""
    LAZY.update((function, handler) for name in names for function in _named(name))


def register_in_place(*pairs: Tuple[str, str]) -> None:
    """Has functions that change their first argument do what another one does: pairs of the names of both."""
    for name, of in pairs:
        IN_PLACE.update((function, getattr(Tensor, of, None) or getattr(F, of)) for function in _named(name))


def _named(name: str) -> List[Any]:
    found = (getattr(home, name, None) for home in (torch, Tensor, F))
    return [function for function in found if function is not None]


def _metadata() -> frozenset[Any]:
    getters = """shape dtype device ndim layout requires_grad is_sparse is_sparse_csr is_quantized is_nested is_meta
        is_mkldnn is_cuda is_leaf grad_fn output_nr names"""
    methods = """dim ndimension size numel nelement __len__ __hash__ is_floating_point is_complex get_device
        element_size is_signed is_same_size is_inference has_names"""
    found = [getattr(Tensor, name).__get__ for name in getters.split() if hasattr(Tensor, name)]
    found += [getattr(Tensor, name) for name in methods.split() if hasattr(Tensor, name)]
    found += [torch.is_floating_point, torch.is_complex, torch.numel, torch.is_same_size]
    return frozenset(found)


METADATA = _metadata()
"""Functions that ask for nothing but shape, dtype and the like."""

OF_HOOKS = frozenset(
    [
        *(getattr(Tensor, name) for name in ("register_hook", "retain_grad")),
        *(getattr(Tensor, name).__get__ for name in ("grad", "retains_grad", "_version", "_backward_hooks")),
    ]
)
"""Functions that are about gradients that arrive at a tensor, and read no values."""

OF_AUTOGRAD = OF_HOOKS | {Tensor.backward, torch.autograd.grad, torch.autograd.backward}
"""Those, and the passes that begin or end at a tensor."""


def changes(func: Any) -> bool:
    """Whether a function changes its first argument."""
    name = getattr(func, "__name__", "")
    in_place = name in AUGMENTED or (name.endswith("_") and not name.endswith("__"))
    return func in IN_PLACE or (in_place and name != "requires_grad_")


AUGMENTED = frozenset(
    ["__setitem__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__"]
    + ["__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"]
)
"""Functions that change their first argument, and do not say so with an underscore behind their name."""
