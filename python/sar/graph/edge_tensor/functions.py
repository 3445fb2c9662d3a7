"""Functions of torch by what they do to edge tensors."""

from __future__ import annotations

from typing import Any, Dict, Sequence

import torch
from torch import Tensor


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
    return in_place and name != "requires_grad_"


AUGMENTED = frozenset(
    ["__setitem__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__"]
    + ["__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"]
)
"""Functions that change their first argument, and do not say so with an underscore behind their name."""

CONVERSIONS = frozenset(
    getattr(Tensor, name) for name in ("to", "type_as", "cpu", "contiguous", "float", "double", "long", "bfloat16")
)
"""Functions that give the tensor itself where there is nothing to convert."""


def converts_nothing(func: Any, like: Tensor, args: Sequence[Any], kwargs: Dict[str, Any]) -> bool:
    """Whether a conversion gives a tensor of this dtype, on the CPU, back as it is."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = torch.empty((0,) * like.dim(), dtype=like.dtype)
        try:
            return func(plain, *args, **kwargs) is plain
        except Exception:  # torch says what is wrong when it is called
            return False
