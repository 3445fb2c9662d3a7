"""Layers over graphs of several relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from sar.data.partition_book import CanonicalEtype
from sar.graph.block import HeteroDistributedBlock
from sar.graph.manager import GraphShardManager

from ._propagate import first_rows

TypedFeatures = Mapping[str, Tensor]
AGGREGATES = ("sum", "max", "min", "mean", "stack")


class HeteroGraphConv(nn.Module):
    """One layer per relation; results at a node type are aggregated over the relations that end there.

    Arguments and results are those of ``dgl.nn.HeteroGraphConv``.

    :param mods: layer by relation, named by its name or its triple
    :param aggregate: ``"sum"``, ``"max"``, ``"min"``, ``"mean"``, ``"stack"``, or a function of the list of results
        and the node type
    :raises ValueError: another aggregate
    """

    def __init__(
        self,
        mods: Union[Mapping[str, nn.Module], Mapping[CanonicalEtype, nn.Module]],
        aggregate: Union[str, Callable[[List[Tensor], str], Tensor]] = "sum",
    ) -> None:
        super().__init__()
        if isinstance(aggregate, str) and aggregate not in AGGREGATES:
            raise ValueError(f"HeteroGraphConv: aggregate {aggregate!r} is unknown; give one of {AGGREGATES}")
        self.mods = nn.ModuleDict({str(key): layer for key, layer in mods.items()})
        self.aggregate = aggregate
        for layer in self.mods.values():
            # a node may lack one relation and have others: there is no rule that could demand in-edges here
            allow = getattr(layer, "set_allow_zero_in_degree", None)
            if callable(allow):
                allow(True)

    def forward(
        self,
        graph: Union[GraphShardManager, HeteroDistributedBlock],
        inputs: Union[TypedFeatures, Tuple[TypedFeatures, TypedFeatures]],
        mod_args: Optional[Mapping[str, Sequence[Any]]] = None,
        mod_kwargs: Optional[Mapping[str, Mapping[str, Any]]] = None,
    ) -> Dict[str, Tensor]:
        """Collective in forward and backward: every worker runs the relations in the same order.

        :param graph: a graph manager or block
        :param inputs: ``{type: [num_src, ...]}``, or a pair for sources and destinations. Relations whose types have
            no input are left out, so all workers must give the same types
        :param mod_args: further arguments of a relation's layer
        :param mod_kwargs: the same, by name
        :returns: ``{type: [num_dst, ...]}``
        :raises KeyError: no layer for a relation
        """
        if isinstance(inputs, tuple):
            sources, targets = inputs
        else:
            sources = inputs
            targets = {t: first_rows(x, graph.num_dst_nodes(t)) for t, x in inputs.items() if t in graph.dsttypes}
        results: Dict[str, List[Tensor]] = {t: [] for t in graph.dsttypes}
        for triple in graph.canonical_etypes:
            source, relation, target = triple
            if source not in sources or target not in targets:
                continue
            out = self._layer(triple)(
                graph[triple],
                (sources[source], targets[target]),
                *(mod_args or {}).get(relation, ()),
                **(mod_kwargs or {}).get(relation, {}),
            )
            results[target].append(out)
        return {t: self._merge(found, t) for t, found in results.items() if found}

    if TYPE_CHECKING:
        __call__ = forward

    def _layer(self, triple: CanonicalEtype) -> nn.Module:
        for key in (str(triple), triple[1]):
            if key in self.mods:
                return self.mods[key]
        raise KeyError(f"HeteroGraphConv has no layer for {triple}; there are: {', '.join(self.mods)}")

    def _merge(self, found: List[Tensor], ntype: str) -> Tensor:
        if callable(self.aggregate):
            return self.aggregate(found, ntype)
        if self.aggregate == "stack":
            return torch.stack(found, dim=1)
        stacked = torch.stack(found)
        merged = getattr(torch, self.aggregate)(stacked, dim=0)
        return merged if isinstance(merged, Tensor) else merged[0]
