"""Nested values as JSON that names the tensors in them."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import torch
from torch import Tensor

DEPTH = 100
"""How deep values may be nested."""
_SCALARS = (bool, int, float, str, type(None))


def encode(value: Any, name: str, tensors: Dict[str, Tensor], depth: int = DEPTH) -> Any:
    """What JSON can hold of a value; its tensors are added to ``tensors`` by their names.

    :param value: tensors, numbers, strings and None, in dictionaries, lists and tuples
    :param name: of the value, with which the names of its tensors begin
    :param depth: how much deeper it may be nested
    :raises TypeError: something else is in it
    :raises ValueError: it is nested too deep
    """
    if not depth:
        raise ValueError(f"{name} is nested more than {DEPTH} times: a checkpoint does not hold that")
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_quantized:
            kind = value.dtype if value.is_quantized else value.layout
            raise TypeError(f"{name} is {kind}: give a dense tensor of numbers (to_dense(), dequantize())")
        while name in tensors:
            name += "'"
        tensors[name] = value.detach().resolve_conj().resolve_neg()
        return {"tensor": name}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (list, tuple)):
        inner = [encode(v, f"{name}.{i}", tensors, depth - 1) for i, v in enumerate(value)]
        return {"tuple": inner} if isinstance(value, tuple) else inner
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, _SCALARS):
                raise TypeError(f"{name} has a key of type {type(key).__name__}: use strings or numbers")
        return {"dict": [[key, encode(v, f"{name}.{key}", tensors, depth - 1)] for key, v in value.items()]}
    raise TypeError(
        f"{name} is a {type(value).__name__}: a checkpoint holds tensors, numbers, strings and None, in dictionaries, "
        "lists and tuples"
    )


def decode(tree: Any, tensor: Callable[[Any], Any], depth: int = DEPTH) -> Any:
    """The value that :func:`encode` was given.

    :param tensor: gives the tensor of a name
    :raises ValueError: it has not made this; says what was expected
    """
    if not depth:
        raise ValueError(f"at most {DEPTH} levels of nesting")
    if isinstance(tree, list):
        return [decode(inner, tensor, depth - 1) for inner in tree]
    if not isinstance(tree, dict):
        return tree
    kind, content = next(iter(tree.items())) if len(tree) == 1 else ("", None)
    if kind == "tensor":
        return tensor(content)
    if kind not in ("tuple", "dict") or not isinstance(content, list):
        raise ValueError("one of tensor, tuple and dict in every object")
    if kind == "tuple":
        return tuple(decode(inner, tensor, depth - 1) for inner in content)
    pairs = [p for p in content if isinstance(p, list) and len(p) == 2 and isinstance(p[0], _SCALARS)]
    found = {key: decode(inner, tensor, depth - 1) for key, inner in pairs}
    if len(found) < len(content):
        raise ValueError("keys that differ, each with a value")
    return found
