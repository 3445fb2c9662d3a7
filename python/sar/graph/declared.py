"""Calls of functions that were declared to treat each edge by itself, see :mod:`sar.graph.rowwise`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from torch import Tensor, nn

from sar._engine.log import log_once
from sar.graph.edge_index.lifted import LiftedTensor
from sar.graph.edge_index.steps import Step, fake_tensors, form_of, formed, rows_of, without_data
from sar.graph.edge_tensor.nested import mapped, tensors
from sar.graph.edge_tensor.tensor import values
from sar.graph.udf.outside import Outside

__all__ = ["called"]


def called(run: Callable[..., Any], owner: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
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
