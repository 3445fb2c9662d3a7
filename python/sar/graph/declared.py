"""Calls of functions that were declared to treat each edge by itself, see :mod:`sar.graph.rowwise`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from torch import Tensor, nn

from sar._engine.log import log_once
from sar.graph.edge_tensor.calls import Call, fake_tensors, form_of, formed, rows, without_data
from sar.graph.edge_tensor.nested import mapped, tensors
from sar.graph.edge_tensor.tensor import EdgeTensor, values
from sar.graph.udf.outside import Outside


def called(run: Callable[..., Any], owner: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """Calls a function, as one of an expression where tensors of edges are among its arguments.

    :param owner: the function, or the module, for errors and for its parameters
    """
    found = [t for t in tensors((args, kwargs)) if isinstance(t, EdgeTensor) and t.edges is not None]
    if not found:
        return run(*args, **kwargs)
    relation, edges = found[0].relation, found[0].edges

    def given(leaf: Any) -> Any:
        if isinstance(leaf, EdgeTensor) and leaf.relation is relation:
            return leaf.by_rows()
        if not isinstance(leaf, Tensor) or Tensor.dim(leaf) == 0:
            return leaf
        if leaf.shape[0] != relation.num_edges:
            raise ValueError(
                f"sar.rowwise: a tensor of shape {tuple(leaf.shape)} was given for {relation.num_edges} edges. "
                "Arguments have a row for each edge; what all edges share belongs into the closure of the function, or "
                "into its module"
            )
        return rows("e", leaf)

    call = Call(run, mapped(args, given), mapped(kwargs, given))
    outside = Outside()
    try:
        with fake_tensors():
            without = {id(x): without_data(x, "cpu") for x in call.args}
            outside.begin(list(without.values()))
            with outside:
                form = form_of(call.run(lambda leaf: without.get(id(leaf), leaf)))
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
    call.uses(list(used.values()))
    made = formed(call, form)
    if made is None:
        raise ValueError("sar.rowwise: the function returned something else than tensors with a row for each edge")
    return mapped(made, lambda x: EdgeTensor(relation, x, edges))
