"""Nested values as JSON that names the tensors in them."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import torch
from torch import Tensor


def encode(value: Any, name: str, tensors: Dict[str, Tensor]) -> Any:
    """What JSON can hold of a value; its tensors are added to ``tensors`` by their names.

    :param value: tensors, numbers, strings and None, in dictionaries, lists and tuples
    :param name: of the value, with which the names of its tensors begin
    :raises TypeError: something else is in it
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{name} is {value.layout}: give a dense tensor (tensor.to_dense())")
        while name in tensors:
            name += "'"
        tensors[name] = value.detach()
        return {"tensor": name}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        inner = [encode(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": inner} if isinstance(value, tuple) else inner
    if isinstance(value, dict):
        for key in value:
            if not (key is None or isinstance(key, (bool, int, float, str))):
                raise TypeError(f"{name} has a key of type {type(key).__name__}: use strings or numbers")
        return {"dict": [[key, encode(v, f"{name}.{key}" if name else str(key), tensors)] for key, v in value.items()]}
    raise TypeError(
        f"{name} is a {type(value).__name__}: a checkpoint holds tensors, numbers, strings and None, in dictionaries, "
        "lists and tuples"
    )


def decode(tree: Any, tensor: Callable[[str], Tensor]) -> Any:
    """The value that :func:`encode` was given.

    :param tensor: gives the tensor of a name
    """
    if isinstance(tree, list):
        return [decode(inner, tensor) for inner in tree]
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensor(tree["tensor"])
    if "tuple" in tree:
        return tuple(decode(inner, tensor) for inner in tree["tuple"])
    return {key: decode(inner, tensor) for key, inner in tree["dict"]}
