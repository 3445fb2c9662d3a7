"""Traces Python functions on a few rows: which columns they read, what they return, which tensors they use.

The columns that a function reads determine which rows are sent, so they must be known beforehand. The function is
therefore run once on arbitrary local rows, or on zeros if there are none.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .batches import Batch, parameters_of

NODES = 7
"""Nodes of a trial, and edges of a trial of a message function: a number that shapes of parameters seldom have."""
DEGREE = 2
"""Edges of each node in a trial of a reduce function."""

Compute = Callable[[Batch], Dict[str, Tensor]]
Slot = Tuple[str, str]
"""A column that a function reads: side ("u", "v", "e", "n") and name."""


class Output(NamedTuple):
    """What a function returns under one name: feature shape, dtype, and whether it depends on what has gradients."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    differentiable: bool


class UdfTrace(NamedTuple):
    """What a trial run showed.

    ``slots``: the rows read of each column; ``outputs``: by name; ``parameters``: leaves that the function uses or may
    use; ``captured``: other tensors with gradients that it uses, results of earlier operations; ``random``: whether it
    draws random numbers; ``edge_bytes``: what a run takes for each edge; ``error``: what it raised, if it did.
    """

    slots: Dict[Slot, Tensor]
    outputs: Dict[str, Output]
    parameters: List[Tensor]
    captured: List[Tensor]
    random: bool
    edge_bytes: int
    error: Optional[Exception]


def tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested sequences and dictionaries."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)


class TensorRecorder(TorchFunctionMode):
    """Sees which tensors come into torch's functions from outside, and what the functions make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Dict[int, Tensor] = {}
        self.foreign: Dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for t in tensors((args, kwargs)):
            if id(t) not in self.made:
                self.foreign[id(t)] = t
        result = func(*args, **kwargs)
        for t in tensors(result):
            if id(t) not in self.foreign:
                self.made[id(t)] = t
        return result


class SubstituteTensors(TorchFunctionMode):
    """Puts other tensors in the places of some."""

    def __init__(self, old: Sequence[Tensor], new: Sequence[Tensor]) -> None:
        super().__init__()
        self._by_id = {id(a): b for a, b in zip(old, new)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*self._swapped(args), **self._swapped(kwargs or {}))

    def _swapped(self, tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return self._by_id.get(id(tree), tree)
        if type(tree) in (list, tuple):
            return type(tree)(self._swapped(item) for item in tree)
        if isinstance(tree, dict):
            return {key: self._swapped(item) for key, item in tree.items()}
        return tree


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


def trace_udf(
    compute: Compute,
    functions: Sequence[Any],
    columns: Callable[[str, str], Tensor],
    names: Mapping[str, Sequence[str]],
    peer: int,
    mailbox: bool,
) -> UdfTrace:
    """Runs ``compute`` on a few rows.

    :param functions: what users wrote of it
    :param columns: whole columns by side and name
    :param names: of the columns of each side
    :param peer: whose shard it is said to be
    :param mailbox: whether a reduce function takes part
    """
    edges = NODES * DEGREE if mailbox else NODES
    slots: Dict[Slot, Tensor] = {}
    recorder = TensorRecorder()

    def read(side: str, name: str) -> Tensor:
        with torch._C.DisableTorchFunction():
            whole = columns(side, name)
            rows = NODES if side == "n" else edges
            if whole.shape[0]:
                few = whole.detach().index_select(0, torch.arange(rows) % whole.shape[0])
            else:
                few = torch.zeros((rows, *whole.shape[1:]), dtype=whole.dtype)
            few.requires_grad_(whole.requires_grad and torch.is_grad_enabled())
            slots[side, name] = recorder.made[id(few)] = few
        return few

    batch = Batch(edges, names, read, peer, NODES if mailbox else 0)
    outputs: Dict[str, Tensor] = {}
    error = None
    before = torch.get_rng_state()
    with kept_buffers(functions):
        try:
            with recorder:
                outputs = compute(batch)
        except Exception as problem:
            error = problem
    random = not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)
    ours = {id(t) for t in slots.values()}
    wanted = {id(t): t for t in leaves_of(list(outputs.values()))}
    wanted.update((i, t) for i, t in recorder.foreign.items() if t.requires_grad and t.is_leaf)
    if torch.is_grad_enabled():
        wanted.update((id(t), t) for function in functions for t in parameters_of(function))
    return UdfTrace(
        slots,
        {k: Output(tuple(t.shape[1:]), t.dtype, t.requires_grad) for k, t in outputs.items()},
        [t for i, t in wanted.items() if i not in ours] if torch.is_grad_enabled() else [],
        [t for t in recorder.foreign.values() if t.requires_grad and not t.is_leaf] if torch.is_grad_enabled() else [],
        random or error is not None,
        _edge_bytes(list(recorder.made.values()), edges),
        error,
    )


def _edge_bytes(made: List[Tensor], edges: int) -> int:
    """Bytes for each edge that a run with its gradients takes, were everything kept."""
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in made
        if any(n and n % NODES == 0 for n in t.shape)
    }
    return 2 * sum(storages.values()) // edges + 1


class kept_buffers:
    """Puts the buffers of the modules that functions are methods of back to what they were (running statistics)."""

    def __init__(self, functions: Sequence[Any]) -> None:
        owners = [getattr(function, "__self__", None) for function in functions]
        self._modules = [owner for owner in owners if isinstance(owner, torch.nn.Module)]
        self._saved: List[Tuple[Tensor, Tensor]] = []

    def __enter__(self) -> None:
        self._saved = [(b, b.clone()) for module in self._modules for b in module.buffers() if b is not None]

    def __exit__(self, *unused: Any) -> None:
        with torch.no_grad():
            for buffer, old in self._saved:
                if not torch.equal(buffer, old):
                    buffer.copy_(old)
