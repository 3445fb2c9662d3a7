"""Arguments and results of functions: tensors and other leaves in nested sequences and dictionaries."""

from __future__ import annotations

from typing import Any, Callable, List

import torch
from torch import Tensor


def leaves(tree: Any) -> List[Any]:
    """What is neither a sequence nor a dictionary, in order."""
    if not isinstance(tree, (list, tuple, dict)):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree
    return [leaf for item in items for leaf in leaves(item)]


def tensors(tree: Any) -> List[Tensor]:
    """The tensors among the leaves."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def mapped(tree: Any, of: Callable[[Any], Any]) -> Any:
    """The same structure with other leaves. A shape is a leaf."""
    if isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
        made = [mapped(item, of) for item in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, dict):
        return {key: mapped(item, of) for key, item in tree.items()}
    return of(tree)
