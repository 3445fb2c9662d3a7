"""One pass of a model over the whole graph."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from sar import pyg
from sar.autograd.fused import low_memory
from sar.autograd.fused.deferred import computed

from .model import Built
from .pointwise import Pointwise

Rows = Union[Tensor, Dict[str, Tensor]]
"""``[own nodes, ...]``, or that by node type."""


class _Reached(BaseException):
    """The layer whose output is wanted has returned it; nothing behind it is computed."""


def features_of(columns: Mapping[str, Tensor], kinds: List[str], name: str, dtype: torch.dtype) -> Rows:
    """The node feature of a name, as ``dtype``: a tensor where there is one node type, else by type, of those that have
    it.

    :raises ValueError: no type has it
    """
    found = {kind: _as(columns[f"{kind}/{name}"], dtype) for kind in kinds if f"{kind}/{name}" in columns}
    if len(kinds) == 1 and not found and name in columns:
        found = {kinds[0]: _as(columns[name], dtype)}
    if not found:
        known = ", ".join(sorted(columns)) or "none"
        raise ValueError(f"no node has a feature {name!r}; there are: {known}. Name one with --features")
    return found[kinds[0]] if len(kinds) == 1 else found


def dtype_of(model: nn.Module) -> torch.dtype:
    """What the model computes in."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _as(column: Tensor, dtype: torch.dtype) -> Tensor:
    if column.dtype == dtype:
        return column
    return low_memory.reread(column.shape, dtype, lambda: computed(column).to(dtype))


def run(
    built: Built,
    graph: Any,
    columns: Dict[str, Tensor],
    kinds: List[str],
    name: str,
    layer: Optional[str],
    autocast: bool = False,
) -> Any:
    """The model's output for all own nodes, or that of one of its layers. Collective.

    In evaluation mode and without gradients. The model is called as :func:`arguments` has it, or as
    ``predict(model, graph, columns)`` where its module has that function. ``columns`` is emptied, so that what the
    model has done with goes.

    :param columns: node features by name; those of :func:`low_memory.reread` are in memory only while a layer reads
        them
    :param layer: name of a submodule whose output is wanted, as ``model.named_modules()`` has it
    :param autocast: products run in bfloat16, and features are given in it
    """
    model = built.model.eval()
    caught: List[Any] = []
    hook = None
    if layer is not None:
        hook = _submodule(model, layer).register_forward_hook(lambda _m, _i, out: _catch(caught, out))
    try:
        cast = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
        with torch.no_grad(), low_memory.inference(), Pointwise(), _by_columns(model), cast:
            if built.predict is not None:
                out = built.predict(model, graph, columns)
            else:
                dtype = torch.bfloat16 if autocast else dtype_of(model)
                inputs = [features_of(columns, kinds, name, dtype)]
                columns.clear()
                out = model(*arguments(model, graph, kinds, inputs.pop()))
    except _Reached:
        return caught[0]
    finally:
        if hook is not None:
            hook.remove()
    if layer is not None:
        raise ValueError(f"the model did not call its layer {layer!r} in this pass: name one that forward runs")
    return out


def _by_columns(model: nn.Module) -> ContextManager[None]:
    """Has layers of DGL that are not fused in training take little memory."""
    if "dgl" not in sys.modules:
        return nullcontext()
    from sar.integrations.dgl.patches.layers import by_columns

    return by_columns(model)


def arguments(model: nn.Module, graph: Any, kinds: List[str], rows: Rows) -> Tuple[Any, Any]:
    """What a model is called with: the graph and node features, or, where the second argument of its forward is called
    ``edge_index`` or ``edge_index_dict``, node features and that, as models of PyG are."""
    second = list(inspect.signature(model.forward).parameters)[1:2]
    if second == ["edge_index"]:
        return rows, pyg.edge_index(graph)
    if second == ["edge_index_dict"]:
        rows = {kinds[0]: rows} if isinstance(rows, Tensor) else rows
        return rows, {triple: pyg.edge_index(graph[triple]) for triple in graph.canonical_etypes}
    return graph, rows


def _catch(caught: List[Any], out: Any) -> None:
    caught.append(out)
    raise _Reached


def _submodule(model: nn.Module, name: str) -> nn.Module:
    known = dict(model.named_modules())
    if name not in known:
        names = ", ".join(n for n in known if n)
        raise ValueError(f"the model has no layer {name!r}; there are: {names or 'none'}")
    return known[name]


def rows_of(out: Any, ntype: Optional[str]) -> Tuple[Optional[str], Tensor]:
    """The rows of one node type among a model's output, and the type where the output names it.

    :raises ValueError: it is not clear which, or they are not one for each own node
    :raises TypeError: the output is no tensor
    """
    kind = ntype
    if isinstance(out, dict):
        if ntype is None and len(out) != 1:
            raise ValueError(f"the model returns rows of node types {', '.join(map(str, out))}: name one with --ntype")
        kind = next(iter(out)) if ntype is None else ntype
        if kind not in out:
            raise ValueError(f"the model returns no rows of node type {kind!r}; there are: {', '.join(map(str, out))}")
        out = out[kind]
    if not isinstance(out, Tensor):
        raise TypeError(
            f"the model returned a {type(out).__name__}: expected a tensor [own nodes, ...], or {{node type: tensor}}; "
            "a function predict(model, graph, features) beside the model's can pick it"
        )
    return kind, computed(out).detach()
