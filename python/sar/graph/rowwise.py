"""Declares functions of users that treat each edge by itself."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, TypeVar

import torch
from torch import Tensor, nn

from sar._engine.log import log_once
from sar.autograd.compile import uncompiled
from sar.graph.edge_index.lifted import LiftedTensor
from sar.graph.edge_index.steps import Step, fake_tensors, form_of, formed, mapped, rows_of, without_data
from sar.graph.edge_tensor.rowwise_rules import tensors
from sar.graph.edge_tensor.tensor import values
from sar.graph.udf.outside import Outside

__all__ = ["rowwise"]

F = TypeVar("F", bound=Callable[..., Any])


def rowwise(function: F) -> F:
    """Declares that a function, or a module, treats each edge by itself: a row of its result depends on the same row of
    its arguments alone.

    SAR knows that of most functions of torch, so that what a message computes runs on blocks of edges. A function that
    it does not know gets the values of all edges of a worker, for which a tensor is made. Declared, it runs on blocks,
    and again in backward, where its results are not kept. ::

        class Layer(MessagePassing):
            def __init__(self):
                super().__init__()
                self.lstm = sar.rowwise(torch.nn.LSTM(16, 16, batch_first=True))

            def message(self, x_j):
                return self.lstm(x_j.view(-1, 4, 16))[0].flatten(1)

    :param function: takes tensors ``[num_edges, ...]``, in any arguments, and returns one, or several in a tuple or
        list. What all edges share it has in its closure, in ``functools.partial``, or as parameters of the module. It
        has to do nothing but compute: it runs once for each block, and once more on tensors without data
        (torch's fake tensors) which say what it returns. A module must not write its buffers
    :returns: the module itself, changed so that its ``forward`` does this; or a function that does it. Called without
        tensors of edges, both do what they did before
    :raises ValueError: when it is called: a tensor that has not a row for each edge
    :raises RuntimeError: when it is called: buffers of the module were written
    """
    if isinstance(function, nn.Module):
        function.forward = _Forward(function)
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _called(function, function, args, kwargs)

    return call  # type: ignore[return-value]


class _Forward:
    """The ``forward`` of a module that was declared; can be copied and pickled with it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self._run, self.module, args, kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module
        before = [(name, b, b.clone()) for name, b in module.named_buffers()]
        found = type(module).forward(module, *args, **kwargs)
        for name, buffer, old in before:
            if not hasattr(old, "fake_mode") and not torch.equal(buffer, old):
                raise RuntimeError(
                    f"sar.rowwise: {type(module).__name__} wrote its buffer {name!r}, once for each block of edges. A "
                    "module that does so, as batch norm in training does, cannot be declared"
                )
        return found


@uncompiled
def _called(run: Callable[..., Any], owner: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """Calls a function, as a step where tensors of edges are among its arguments.

    :param owner: the function, or the module, for errors and for its parameters
    """
    found = [t for t in tensors((args, kwargs)) if isinstance(t, LiftedTensor)]
    if not found:
        return run(*args, **kwargs)
    edges = found[0].edges

    def given(leaf: Any) -> Any:
        if isinstance(leaf, LiftedTensor) and leaf.edges is edges:
            return leaf.as_step()
        if not isinstance(leaf, Tensor) or Tensor.dim(leaf) == 0:
            return leaf
        if leaf.shape[0] != edges.relation.num_edges:
            raise ValueError(
                f"sar.rowwise: a tensor of shape {tuple(leaf.shape)} was given for {edges.relation.num_edges} edges. "
                "Arguments have a row for each edge; what all edges share belongs into the closure of the function, or "
                "into its module"
            )
        return rows_of("e", leaf)

    step = Step(run, mapped(args, given), mapped(kwargs, given))
    outside = Outside()
    try:
        form = _form(step, outside)
    except Exception as error:
        name = type(owner).__name__ if isinstance(owner, nn.Module) else getattr(owner, "__name__", repr(owner))
        log_once(
            f"rowwise {name}",
            f"sar.rowwise: {name} does not run on tensors without data ({type(error).__name__}: {error}), so it gets "
            "the values of all edges of this worker",
        )
        return run(*values(args), **values(kwargs))
    own = owner.parameters() if isinstance(owner, nn.Module) else ()
    used: Dict[int, Tensor] = {id(t): t for t in (*outside.parameters, *outside.captured, *own)}
    step.used = list(used.values())
    made = formed(step, form)
    if made is None:
        raise ValueError("sar.rowwise: the function returned something else than tensors with a row for each edge")
    return mapped(made, lambda s: LiftedTensor.of_step(edges, s))


def _form(step: Step, outside: Outside) -> Any:
    """What the function of a step gives, run on tensors without data: so are all that it takes from outside."""
    with fake_tensors():
        rows: Dict[int, Tensor] = {}

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Step):
                return leaf
            t = leaf.meta
            return rows.setdefault(id(leaf), without_data(t.shape, t.dtype, t.requires_grad, "cpu"))

        mapped((step.args, step.kwargs), given)
        outside.begin(list(rows.values()))
        with outside:
            return form_of(step.run(given))
