"""``edge_softmax`` on graphs split over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union, overload

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.autograd import expression
from sar.autograd.compile import uncompiled
from sar.autograd.expression import Expr, evaluate
from sar.data.partition_book import CanonicalEtype
from sar.graph.block import DistributedBlock, HeteroDistributedBlock
from sar.graph.frames import check_rows
from sar.graph.relation import Relation
from sar.graph.types import ALL, Edges, is_all

from .over_sources import source_softmax
from .tensor import EdgeTensor, as_expr, values

__all__ = ["edge_softmax"]

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager
    from sar.graph.reversed import ReversedGraph
    from sar.integrations.types import DGLGraph

    Graph = Union[GraphShardManager, ReversedGraph, DistributedBlock, HeteroDistributedBlock, DGLGraph]

ByRelation = Union[Dict[str, Tensor], Dict[CanonicalEtype, Tensor]]


@overload
def edge_softmax(graph: Graph, logits: Tensor, eids: Edges = ALL, norm_by: str = "dst") -> Tensor: ...
@overload
def edge_softmax(
    graph: Graph, logits: ByRelation, eids: Edges = ALL, norm_by: str = "dst"
) -> Dict[CanonicalEtype, Tensor]: ...
@uncompiled
def edge_softmax(
    graph: Any, logits: Union[Tensor, ByRelation], eids: Edges = ALL, norm_by: str = "dst"
) -> Union[Tensor, Dict[CanonicalEtype, Tensor]]:
    """``exp(logits) / sum of exp(logits)`` over the edges of each node, element by element. Collective.

    :param graph: a graph manager, or what ``dgl.reverse`` made of one; a graph of DGL, and a graph for one-shot
        aggregation, are handed to ``dgl.ops.edge_softmax``
    :param logits: ``[num_edges, ...]`` float32 or float64, or an edge tensor of ``apply_edges``. Where the graph has
        several relations, ``{relation: logits}``; the softmax is then over the edges of all relations of a node
    :param eids: int64, positions of the edges that take part; ``logits`` then has a row for each. Default: all edges
    :param norm_by: ``"dst"``: over the in-edges of each destination; ``"src"``: over the out-edges of each source,
        which may be on any worker
    :returns: the same shape, or a dictionary. With ``"dst"`` and all edges an edge tensor that is not computed until
        it is read: ``update_all`` and :func:`torch.nn.functional.dropout` do not read it
    :raises ValueError: another ``norm_by``, or the number of rows
    :raises TypeError: the kind of logits, or dtype
    """
    if norm_by not in ("dst", "src"):
        raise ValueError(f"norm_by={norm_by!r}: edges are normalized by their 'dst' or by their 'src'")
    relations: Optional[List[Relation]] = getattr(graph, "_relations", None)
    if relations is None or isinstance(graph, (DistributedBlock, HeteroDistributedBlock)):
        from sar.integrations.dgl import fallback as dgl_fallback

        found: Tensor = dgl_fallback.edge_softmax(graph, logits, eids, norm_by)
        return found
    if getattr(graph, "is_reversed", False):
        norm_by = "src" if norm_by == "dst" else "dst"
    if not isinstance(logits, dict):
        if len(relations) != 1:
            raise TypeError(f"this graph has several relations: give logits as {{relation: tensor}}, of {graph.etypes}")
        return _one(relations[0], logits, eids, norm_by)
    given = {graph.to_canonical_etype(key): value for key, value in logits.items()}
    chosen = [r for r in relations if r.canonical in given]
    if not is_all(eids):
        raise ValueError("eids is for graphs of one relation: leave it out, or take the softmax of graph[relation]")
    if norm_by == "src":
        results = source_softmax(chosen, [_checked(r, given[r.canonical]) for r in chosen])
    else:
        results = _joint(chosen, [_checked(r, given[r.canonical]) for r in chosen])
    return {r.canonical: value for r, value in zip(chosen, results)}


def _one(relation: Relation, logits: Tensor, eids: Any, norm_by: str) -> Tensor:
    if is_all(eids):
        logits = _checked(relation, logits)
        if norm_by == "src":
            return source_softmax([relation], [logits])[0]
        return EdgeTensor(relation, expression.softmax(as_expr(logits, "e")))
    positions = torch.as_tensor(eids).to(torch.int64)
    logits = values(logits)
    if len(logits) != len(positions):
        raise ValueError(f"logits has {len(logits)} rows and eids {len(positions)}: each edge of eids needs one")
    # edges that do not take part weigh nothing beside those that do, and are not looked at afterwards; finite where
    # they may be all that a node has
    least = torch.finfo(logits.dtype).min / 4 if norm_by == "dst" else float("-inf")
    spread = logits.new_full((relation.num_edges, *logits.shape[1:]), least).index_put((positions,), logits)
    found: Tensor = values(_one(relation, spread, ALL, norm_by))[positions]
    return found


def _joint(relations: List[Relation], logits: List[Tensor]) -> List[Tensor]:
    """The softmax over the in-edges of all relations of a destination."""
    shifts: Dict[str, Tensor] = {}
    for relation, value in zip(relations, logits):
        expr = as_expr(value, "e")
        with torch.no_grad():
            most = evaluate(relation, expr, "max").to(computed_in(expr.dtype))
            empty = (relation.degrees(out=False) == 0).view(-1, *(1,) * len(expr.shape))
            most = most.masked_fill(empty, float("-inf"))
        kind = relation.canonical[2]
        shifts[kind] = torch.maximum(shifts[kind], most) if kind in shifts else most
    shifts = {kind: value.masked_fill(value == float("-inf"), 0.0) for kind, value in shifts.items()}
    powers: List[Expr] = []
    sums: Dict[str, Tensor] = {}
    for relation, value in zip(relations, logits):
        kind = relation.canonical[2]
        shift = expression.load("v", shifts[kind])
        power = expression.unary("exp", expression.binary("sub", as_expr(value, "e"), shift))
        powers.append(power)
        part = evaluate(relation, power, "sum")
        sums[kind] = sums[kind] + part if kind in sums else part
    results = [
        expression.binary("div", x, expression.load("v", sums[r.canonical[2]])) for r, x in zip(relations, powers)
    ]
    return [
        EdgeTensor(r, expression.as_type(result, value.dtype)) for r, result, value in zip(relations, results, logits)
    ]


def _checked(relation: Relation, logits: Tensor) -> Tensor:
    check_rows("logits", logits, relation.num_edges, f"in-edges of relation {relation.canonical[1]!r}")
    return logits
