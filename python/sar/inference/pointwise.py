"""Row-wise functions of torch, computed in place when their result is read."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sar.autograd.fused import low_memory
from sar.autograd.fused.gat_columns import FUNCTIONS

_ACTIVATIONS = FUNCTIONS | {Tensor.relu, Tensor.sigmoid, Tensor.tanh}


class Pointwise(TorchFunctionMode):
    """Hands activations, and normalization that does not depend on other rows, to :func:`low_memory.defer`."""

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Tensor) and low_memory.active():
            step = _step(func, args[1:], kwargs)
            later = None if step is None else low_memory.defer(args[0], step)
            if later is not None:
                return later
        return func(*args, **kwargs)


def _step(func: Any, rest: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Callable[[Tensor], Tensor]]:
    """What a call does to some rows; None where rows depend on each other, or the input is changed."""
    if func in _ACTIVATIONS:
        if kwargs.get("inplace") or any(value is True for value in rest):
            return None
    elif func is F.batch_norm:
        training = kwargs.get("training", rest[4] if len(rest) > 4 else False)
        if training or (rest and rest[0] is None):
            return None
    else:
        return None
    return lambda rows: func(rows, *rest, **kwargs)
