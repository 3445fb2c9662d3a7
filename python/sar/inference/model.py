"""Finds a model that a user names, and fills it from a checkpoint."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pickle
import sys
from types import ModuleType
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor, nn

from sar.checkpoints.load import model_state
from sar.checkpoints.state import misfit, shapes_of
from sar.checkpoints.tensor_files import TensorFile
from sar.data.directory import open_regular

Predict = Callable[[nn.Module, Any, Dict[str, Tensor]], Any]
_STATES = ("model", "state_dict", "model_state_dict")
"""Where checkpoints that hold more than a state dict have it."""


class Built(NamedTuple):
    """A model, and how to call it where its module says so."""

    model: nn.Module
    predict: Optional[Predict]


def build(spec: str, arguments: Dict[str, Any]) -> Built:
    """The model that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` makes, called with ``arguments``.

    Where the module has a function ``predict(model, graph, features)``, that runs the model.

    :raises ValueError: not of that form
    :raises ImportError, AttributeError: there is no such module or function
    :raises TypeError: it returned no ``torch.nn.Module``
    """
    name, _, function = spec.rpartition(":")
    if not name or not function.isidentifier():
        raise ValueError(f"model {spec!r}: give MODULE:FUNCTION or FILE.py:FUNCTION, a function that returns the model")
    module = _file(name) if name.endswith(".py") else importlib.import_module(name)
    make = getattr(module, function, None)
    if not callable(make):
        known = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise AttributeError(f"{name} has no function {function!r}; there are: {', '.join(known) or 'none'}")
    model = make(**arguments)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{spec} returned a {type(model).__name__}: it must return the model, a torch.nn.Module")
    return Built(model, getattr(module, "predict", None))


def _file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # what the file imports from beside it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(model: nn.Module, path: str) -> None:
    """Fills a model from a checkpoint: a directory of :func:`sar.save_checkpoint`, a file of safetensors, or what
    ``torch.save`` makes of a state dict, or of a dictionary that holds one under ``"model"``, ``"state_dict"`` or
    ``"model_state_dict"``. The last is a pickle, of which only tensors and plain values are read
    (``weights_only=True``); since torch before 2.6 runs code in it even so, it is refused there.

    :raises ValueError: keys or shapes are not those of the model, the file holds something else, or is a pickle that
        this torch cannot be trusted with
    :raises OSError: it cannot be read
    """
    state = _state_of(path)
    own = model.state_dict()
    if state and not set(state) & set(own) and all(key.startswith("module.") for key in state):
        state = {key[len("module.") :]: value for key, value in state.items()}  # of DistributedDataParallel
    problem = misfit(shapes_of(own), shapes_of(state))
    if problem:
        raise ValueError(f"the checkpoint {path} does not fit the model {type(model).__name__}: {problem}")
    model.load_state_dict(state)


def _state_of(path: str) -> Dict[str, Any]:
    if os.path.isdir(path):
        return model_state(path)
    with open_regular(path) as file:
        if path.endswith(".safetensors") or file.buffer.read(9)[8:] == b"{":
            return TensorFile(path).read_all()
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        raise ValueError(
            f"the checkpoint {path} is a pickle, and torch {torch.__version__} runs code that one may hold, with "
            "weights_only=True, too (CVE-2025-32434): use torch 2.6 or newer, or save the model with "
            "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"the checkpoint {path} holds more than tensors and plain values, which is not read, since it could run "
            f"code of its own: save model.state_dict(). torch says: {str(error).splitlines()[0]}"
        ) from None
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"the checkpoint {path} cannot be read: {str(error).splitlines()[0]}") from None
    if isinstance(found, dict):
        for name in _STATES:
            if isinstance(found.get(name), dict):
                found = found[name]
                break
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"the checkpoint {path} holds a {type(found).__name__}: save model.state_dict()")
    return found


def fingerprint(model: nn.Module) -> str:
    """A hash of all parameters and buffers, by which workers notice that their checkpoints differ."""
    found = hashlib.blake2b(digest_size=16)
    for key, value in model.state_dict().items():
        found.update(f"{key} {value.dtype if isinstance(value, Tensor) else value} ".encode())
        if isinstance(value, Tensor):
            found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
