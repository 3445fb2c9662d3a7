"""Tensors from outside that functions of batches use: parameters, results of earlier operations, buffers."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function

from sar.graph.edge_tensor.functions import changes
from sar.graph.edge_tensor.nested import mapped, tensors


def leaves_of(results: Sequence[Tensor]) -> Iterator[Tensor]:
    """The leaves with gradients that results were computed from."""
    todo = [t.grad_fn for t in results if t.grad_fn is not None]
    seen = set(todo)
    for node in todo:
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)


class _Mode(TorchFunctionMode):
    """Sees all of torch's functions. Torch before 2.3 does not ask modes about indexing, ``x[i]`` and ``x[i] = y``:
    there the two are replaced while the mode is entered."""

    _entered: ClassVar[int] = 0

    def __enter__(self) -> Any:
        if not _ASKS_FOR_INDEXING:
            if _Mode._entered == 0:
                for original in _INDEXING:
                    setattr(Tensor, original.__name__, _asking(original))
            _Mode._entered += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if not _ASKS_FOR_INDEXING:
            _Mode._entered -= 1
            if _Mode._entered == 0:
                for original in _INDEXING:
                    delattr(Tensor, original.__name__)


_INDEXING = (Tensor.__getitem__, Tensor.__setitem__)


def _asking(original: Any) -> Any:
    @functools.wraps(original)
    def indexed(*args: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(original, args, *args)
        return original(*args)

    return indexed


def _asks_for_indexing() -> bool:
    seen = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Seeing():
        torch.zeros(1)[0]  # noqa: B018
    return Tensor.__getitem__ in seen


_ASKS_FOR_INDEXING = _asks_for_indexing()


class Outside(_Mode):
    """Collects the tensors with gradients that come into torch's functions from outside.

    :ivar parameters: leaves
    :ivar captured: results of earlier operations
    :ivar instead: leaves in their places, so that gradients end there
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: Dict[int, Tensor] = {}
        self._parameters: Dict[int, Tensor] = {}
        self._captured: Dict[int, Tuple[Tensor, Tensor]] = {}

    @property
    def parameters(self) -> List[Tensor]:
        return list(self._parameters.values())

    @property
    def captured(self) -> List[Tensor]:
        return [t for t, _ in self._captured.values()]

    @property
    def instead(self) -> List[Tensor]:
        return [t for _, t in self._captured.values()]

    def begin(self, rows: Sequence[Tensor]) -> None:
        """A batch begins: these are its rows, and what an earlier one made is gone."""
        self._made = {id(t): t for t in (*rows, *self.instead)}

    def own(self, rows: Tensor) -> None:
        """Rows that the batch gets while it runs."""
        self._made[id(rows)] = rows

    def see(self, tree: Any) -> None:
        """Takes note of the tensors among the arguments of a function."""
        for t in tensors(tree):
            if not t.requires_grad or id(t) in self._made:
                continue
            if t.is_leaf:
                self._parameters[id(t)] = t
            elif id(t) not in self._captured:
                leaf = t.detach().requires_grad_()
                self._captured[id(t)], self._made[id(leaf)] = (t, leaf), leaf

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.see((args, kwargs))
        instead = {key: leaf for key, (_, leaf) in self._captured.items()}
        result = func(*swapped(args, instead), **swapped(kwargs or {}, instead))
        for t in tensors(result):
            if id(t) not in self._parameters:
                self._made[id(t)] = t
        return result


class Replay(_Mode):
    """Runs a function again with leaves in the places of captured tensors, and without changing anything that is not
    its own: what it writes into tensors from outside (running statistics, counts) it wrote the first time.

    :param outside: what the function uses
    :param rows: tensors that it was given
    """

    def __init__(self, outside: Outside, rows: Sequence[Tensor]) -> None:
        super().__init__()
        self._instead = {id(t): leaf for t, leaf in zip(outside.captured, outside.instead)}
        self._own = {id(t): t for t in (*rows, *outside.instead)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = swapped(args, self._instead), swapped(kwargs or {}, self._instead)
        for t in _written(func, args, kwargs):
            if id(t) not in self._own and not t.requires_grad:
                copy = self._instead[id(t)] = t.clone()
                self._own.update({id(copy): copy, id(t): t})
                args, kwargs = swapped(args, self._instead), swapped(kwargs, self._instead)
        others = {_memory(t) for t in tensors((args, kwargs)) if id(t) not in self._own}
        result = func(*args, **kwargs)
        self._own.update((id(t), t) for t in tensors(result) if _memory(t) not in others)
        return result


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def swapped(tree: Any, instead: Mapping[int, Tensor]) -> Any:
    """The same structure with some tensors in the places of others, by id."""
    return mapped(tree, lambda leaf: instead.get(id(leaf), leaf))


def _written(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[Tensor]:
    """The tensors among the arguments that a function changes."""
    found = list(tensors(kwargs.get("out")))
    if func in (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm):
        places = (1, 2) if func in (F.batch_norm, F.instance_norm) else (3, 4)
        found += [*tensors([args[n] for n in places if n < len(args)])]
        found += [*tensors([kwargs.get("running_mean"), kwargs.get("running_var")])]
    elif args and changes(func):
        found += tensors(args[:1])
    return found
