"""Methods of DGL graphs that are not supported, with what to use instead."""

from __future__ import annotations

from typing import Any, Callable, Dict

__all__ = ["Refused"]

_MATRIX = (
    "the matrix has edges of all workers. Multiply by it with update_all(copy_u, sum); compute what needs all of it, "
    "such as the eigenvectors of dgl.lap_pe, in DGL before the graph is partitioned, and keep the result in ndata"
)
_ENDS = "an edge is known to the worker that owns its destination alone: use the ends in graph.edges()"
_STRUCTURE = "nodes and edges are spread over the workers: change the graph before it is partitioned"
_SOME = "messages go to all destinations (update_all), or along some in-edges of each worker (send_and_recv)"

REFUSED: Dict[str, str] = {
    **dict.fromkeys(["adj", "adj_external", "adj_tensors", "adjacency_matrix", "adj_sparse", "inc"], _MATRIX),
    **dict.fromkeys(["predecessors", "successors", "find_edges", "in_edges", "out_edges", "edge_ids"], _ENDS),
    **dict.fromkeys(["has_edges_between", "has_edge_between"], _ENDS),
    **dict.fromkeys(["add_nodes", "remove_nodes"], _STRUCTURE),
    "add_edges": _STRUCTURE + " (add_self_loop works here as well)",
    **dict.fromkeys(["pull", "push", "prop_nodes", "prop_edges"], _SOME),
}
"""What to do in place of each method."""


def _refusing(name: str, why: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"graph.{name} is not supported on a partitioned graph: {why}")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Raises NotImplementedError: {why}."
    return method


class Refused:
    """What a graph manager inherits to refuse them on every worker alike, before anything is sent."""


for _name, _why in REFUSED.items():
    setattr(Refused, _name, _refusing(_name, _why))
