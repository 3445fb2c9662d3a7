"""What a checkpoint holds of a script: its models, its optimizers, values of its own, and random states."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Union

import torch
from torch import Tensor, nn

from sar.units import some

from .tree import encode

Models = Union[nn.Module, Mapping[str, nn.Module]]
"""A model, or several by name."""


class Stateful(Protocol):
    """An optimizer or a scheduler."""

    def state_dict(self) -> Dict[str, Any]: ...
    def load_state_dict(self, state_dict: Dict[str, Any]) -> Any: ...


Optimizers = Union[None, Stateful, Mapping[str, Stateful]]
"""An optimizer, or several by name: what has ``state_dict`` and ``load_state_dict``, schedulers too."""


class State(NamedTuple):
    """``trees``: JSON by section; ``tensors``: by name; ``follows``: of tensors of an optimizer's state that have the
    shape of their parameter, its name."""

    trees: Dict[str, Any]
    tensors: Dict[str, Tensor]
    follows: Dict[str, str]


def models_of(model: Models) -> Dict[str, nn.Module]:
    """Models by name.

    :raises TypeError: something is no ``torch.nn.Module``
    """
    found = {"model": model} if isinstance(model, nn.Module) else dict(model)
    for name, one in found.items():
        if not isinstance(one, nn.Module):
            raise TypeError(
                f"model {name!r} is a {type(one).__name__}: give a torch.nn.Module (nn.ParameterDict is one)"
            )
    return found


def optimizers_of(optimizer: Optimizers) -> Dict[str, Any]:
    """Optimizers by name.

    :raises TypeError: something has no ``state_dict`` or ``load_state_dict``
    """
    if optimizer is None:
        return {}
    found = dict(optimizer) if isinstance(optimizer, Mapping) else {"optimizer": optimizer}
    for name, one in found.items():
        if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
            raise TypeError(f"optimizer {name!r} is a {type(one).__name__}: it has no state_dict and load_state_dict")
    return found


def capture(model: Models, optimizer: Optimizers, extra: Any) -> State:
    """The state of this worker. The tensors are those of the model, not copies.

    :raises TypeError: of an argument, or of a value that a checkpoint cannot hold
    :raises ValueError: an optimizer has a parameter that no model has
    """
    tensors: Dict[str, Tensor] = {}
    trees: Dict[str, Any] = {"model": {}, "optimizer": {}}
    models, optimizers = models_of(model), optimizers_of(optimizer)
    for name, one in models.items():
        trees["model"][name] = encode(dict(one.state_dict()), name, tensors)
    names = {id(p): f"{key}.{name}" for key, one in models.items() for name, p in one.named_parameters()}
    follows: Dict[str, str] = {}
    for name, one in optimizers.items():
        prefix = "optimizer" if name == "optimizer" else f"optimizer.{name}"
        state = one.state_dict()
        trees["optimizer"][name] = encode(state, prefix, tensors)
        if isinstance(one, torch.optim.Optimizer):
            parameters = _parameters(one)
            unknown = [i for i, p in enumerate(parameters) if id(p) not in names]
            if unknown:
                raise ValueError(
                    f"the optimizer has a parameter of shape {tuple(parameters[unknown[0]].shape)} that is not in the "
                    "model: give everything that is trained, as model={'model': model, 'learned': "
                    "torch.nn.ParameterDict(learned)}"
                )
            for number, values in state["state"].items():
                for key, value in values.items():
                    if isinstance(value, Tensor) and value.dim() and value.shape == parameters[number].shape:
                        follows[f"{prefix}.state.{number}.{key}"] = names[id(parameters[number])]
    trees["extra"] = encode(extra, "extra", tensors)
    from . import random_state  # in few scripts

    trees["random"] = encode(random_state.capture(), "random", tensors)
    return State(trees, tensors, follows)


def _parameters(optimizer: torch.optim.Optimizer) -> List[Tensor]:
    """Parameters in the order of the numbers that ``state_dict`` gives them."""
    found: Dict[int, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found.setdefault(id(parameter), parameter)
    return list(found.values())


def shapes_of(values: Mapping[str, Any]) -> Dict[str, Optional[List[int]]]:
    """The shapes of a state dict's tensors; None of what has none yet, or is no tensor."""
    lazy = (nn.UninitializedParameter, nn.UninitializedBuffer)
    return {
        name: list(value.shape) if isinstance(value, Tensor) and not isinstance(value, lazy) else None
        for name, value in values.items()
    }


def misfit(own: Mapping[str, Optional[List[int]]], stored: Mapping[str, Optional[List[int]]]) -> str:
    """How a state dict differs from that of a model; "" where it fits."""
    missing, more = sorted(set(own) - set(stored)), sorted(set(stored) - set(own))
    problems = [f"it lacks {some(missing)}"] if missing else []
    if more:
        problems.append(f"the model has no {some(more)}")
    shapes = [
        f"{name}: {tuple(theirs)} in the checkpoint, {tuple(mine)} in the model"
        for name, mine in own.items()
        if mine is not None and (theirs := stored.get(name)) is not None and mine != theirs
    ]
    values = [name for name, mine in own.items() if mine is not None and stored.get(name, mine) is None]
    if values:
        problems.append(f"no tensors: {some(values)}")
    if shapes:
        problems.append(f"shapes differ: {some(shapes, '; ')}")
    return "; ".join(problems)
