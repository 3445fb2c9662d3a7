"""Methods and attributes that layers of DGL use besides message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Union, overload

from .refused import refusal, refuse_libraries
from .relation import Relation
from .self_loops import with_self_loops, without_self_loops
from .types import AnyGraph

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GraphIndex", "LayerSupport"]


class LayerSupport:
    """What a graph manager inherits so that DGL's layers find what they look for."""

    _relations: List[Relation]

    @property
    def _graph(self) -> GraphIndex:
        """In DGL the graph's C++ half; ``dgl.ops`` ask it how many relations there are."""
        refuse_libraries("graph._graph")
        return GraphIndex(self)

    @overload
    def formats(self, formats: None = None) -> Dict[str, List[str]]: ...
    @overload
    def formats(self, formats: Union[str, Sequence[str]]) -> Self: ...
    def formats(self, formats: Union[None, str, Sequence[str]] = None) -> Union[Dict[str, List[str]], Self]:
        """In-edges by destination, in the engine: ``{"created": ["csc"], "not created": []}``, as DGL has it. Asked for
        formats, the graph itself."""
        return {"created": ["csc"], "not created": []} if formats is None else self

    def create_formats_(self) -> None:
        """Nothing: the engine has what it needs."""

    def add_self_loop(self: AnyGraph, fill_data: float = 1.0) -> AnyGraph:
        """A new graph with one more edge for each node, from it to itself, behind the others. Collective.

        :param fill_data: what the new edges have in ``edata``
        :raises ValueError: a block, or a graph of several types
        """
        return with_self_loops(self, fill_data)

    def remove_self_loop(self: AnyGraph) -> AnyGraph:
        """A new graph without the edges from a node to itself. Collective.

        :raises ValueError: a block, or a graph of several types
        """
        return without_self_loops(self)


class GraphIndex:
    """Takes the place of a DGL graph's C++ half, and refers to the graph manager."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def number_of_etypes(self) -> int:
        """How many relations the graph has."""
        return len(self.manager._relations)

    def __getattr__(self, name: str) -> Any:
        raise refusal(
            f"graph._graph.{name}",
            "it is inside DGL's C++ graph. Use the methods of the graph itself; dgl.ops take one relation at a time, "
            "graph[relation]",
        )
