"""Edge subgraphs: ``clone``, ``remove_edges``, ``send_and_recv``, and filters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from sar._engine import blocks, session as _session
from sar.autograd import expression
from sar.autograd.compile import uncompiled
from sar.data.partition_book import CanonicalEtype
from sar.distributed.agreement import agreed_seed, of_every_rank

from .degrees import agree_on_degrees
from .frames import EdgeFrame
from .message_passing.edge_space import EdgeSpace
from .message_passing.update import MessagePassing, chosen_edges, edge_function, passed, with_rows
from .queries import edge_ends
from .relation import NativeGraph, Relation
from .state import GraphState
from .types import ALL, Edges, Etype, is_all
from .udf.batches import Columns, EdgeBatch, EdgeFunction, NodeBatch, NodeFunction, ReduceFunction, checked

if TYPE_CHECKING:
    from typing_extensions import Self


class Subgraphs(MessagePassing):
    """``remove_edges``, ``send_and_recv`` and filters, for graph managers to inherit."""

    def clone(self) -> Self:
        """A copy of the graph with its own columns and edges: setting or removing them in the copy does not change this
        graph. The tensors in the columns are shared."""
        copy: Self = self.local_var()  # type: ignore[attr-defined]
        return copy

    @uncompiled
    def remove_edges(self, eids: Edges, etype: Optional[Etype] = None, store_ids: bool = False) -> None:
        """Removes in-edges of own nodes, in place. Collective: every worker names edges of its own, or none.

        Slices ``graph[relation]`` made before keep the edges. Edges that stay keep their order and what attention
        dropout knows them by.

        :param eids: positions, int64 ``[n]``, or a mask
        :param etype: the relation; it may be left out where there is one
        :param store_ids: keep the positions that the edges had, in ``edata["_ID"]``
        :raises ValueError: a position that is not there, or a block
        """
        self._refuse_block()
        relation = self._relation(etype)
        stay = torch.ones(relation.num_edges, dtype=torch.bool)
        gone = chosen_edges(eids, relation.num_edges)
        stay[slice(None) if gone is None else gone] = False
        self.keep_edges({relation.canonical: stay}, store_ids)

    @uncompiled
    def keep_edges(self, stay: Dict[CanonicalEtype, Tensor], store_ids: bool = False) -> None:
        """Removes all edges of some relations but those of a mask, in place. Collective.

        :param stay: bool ``[num_edges]`` by relation; the same relations on every worker
        :raises ValueError: a block
        """
        self._refuse_block()
        shown = [self._state.relations.index(r) for r in self._relations]
        self._state = _with_edges(self._state, {k: torch.nonzero(m).view(-1) for k, m in stay.items()}, store_ids)
        whole = len(shown) == len(self._state.relations)
        self._relations = self._state.relations if whole else [self._state.relations[n] for n in shown]

    def _refuse_block(self) -> None:
        if not self.src_is_tgt:
            raise ValueError("edges are removed from full graphs: remove them before construct_mfgs makes blocks")

    @uncompiled
    def send_and_recv(
        self,
        edges: Edges,
        message_func: EdgeFunction,
        reduce_func: ReduceFunction,
        apply_node_func: Optional[NodeFunction] = None,
        etype: Optional[Etype] = None,
    ) -> None:
        """Sends messages along some edges and reduces them at their destinations. Collective.

        As :meth:`update_all`, but destinations that none of these edges reaches keep their columns as they are (0 in
        columns that are new), and ``apply_node_func`` gets the others alone. The edges are made a graph of their own
        first, which takes two small movements: a mask in ``edata`` and ``u_mul_e`` are quicker where they do.

        :param edges: positions of own in-edges, int64 ``[n]``, or a mask; one named twice sends twice. Every worker
            names edges of its own, or none
        :raises KeyError, TypeError, ValueError: as :meth:`update_all`, and a column that cannot take the results
        """
        space = self._space(etype)
        chosen = chosen_edges(edges, space.relation.num_edges)
        part = _some_edges(space, torch.arange(space.relation.num_edges) if chosen is None else chosen)
        if part.relation.info.num_edges_global == 0:
            return
        results = passed(part, message_func, reduce_func, None)
        reached = torch.nonzero(part.relation.degrees(out=False)).view(-1)
        rows = {name: value.index_select(0, reached) for name, value in results.items()}
        if apply_node_func is not None:
            data = _rows_of(space.target.dstdata, reached, rows)
            batch = NodeBatch(len(reached), space.etype[2], data, lambda: space.ids("v")[reached])
            rows = checked(apply_node_func, apply_node_func(batch), len(reached), "nodes")
        for name, value in rows.items():
            space.results()[name] = with_rows(space, "v", name, value, reached)

    @uncompiled
    def filter_nodes(
        self, predicate: Callable[[NodeBatch], Tensor], nodes: Edges = ALL, ntype: Optional[str] = None
    ) -> Tensor:
        """Own nodes for which a function returns true; local.

        :param predicate: gets a :class:`~sar.graph.udf.batches.NodeBatch` and returns bool ``[nodes]``
        :param nodes: own nodes to ask about, numbered as :attr:`nodes` numbers them; all by default
        :param ntype: the node type; it may be left out where there is one
        :returns: int64 ``[n]``, numbered as :attr:`nodes` numbers them: rows of the worker's features of the type
        :raises ValueError: a node that is not there, another number of answers, or a block
        """
        if not self.src_is_tgt:
            raise ValueError("a block has source rows and destination rows: look at srcdata or dstdata in their place")
        kind = self._ntype(ntype)
        rows = self._state.nodes[kind]
        given = torch.arange(rows.num_dst) if is_all(nodes) else torch.as_tensor(nodes).to(torch.int64).view(-1)
        if len(given) and not (int(given.min()) >= 0 and int(given.max()) < rows.num_dst):
            raise ValueError(f"filter_nodes: nodes of type {kind!r} are 0 .. {rows.num_dst - 1} on this worker")
        columns = self._state.frames[kind].ndata
        data = columns if is_all(nodes) else _rows_of(columns, given, {})
        batch = NodeBatch(len(given), kind, data, lambda: given + rows.first)
        return given[_mask(predicate(batch), len(given), "filter_nodes")]

    @uncompiled
    def filter_edges(
        self, predicate: Callable[[EdgeBatch], Tensor], edges: Edges = ALL, etype: Optional[Etype] = None
    ) -> Tensor:
        """In-edges of own nodes for which a function returns true. Collective.

        :param predicate: gets an :class:`~sar.graph.udf.batches.EdgeBatch` and returns bool ``[edges]``; it runs
            on blocks of edges, as message functions do
        :param edges: positions of the edges to ask about, int64, or a mask; all by default
        :returns: positions, int64 ``[n]``
        :raises ValueError: a position that is not there, or another number of answers
        """
        space = self._space(etype)
        chosen = chosen_edges(edges, space.relation.num_edges)

        def asked(batch: Any) -> Dict[str, Tensor]:
            return {"yes": _mask(predicate(batch), len(batch), "filter_edges").to(torch.uint8)}

        with torch.no_grad():
            found = edge_function(space, asked, chosen)["yes"]
        given = torch.arange(space.relation.num_edges) if chosen is None else chosen
        return given[found.bool()]


def edges_kept_at_random(relation: Relation, drop: float) -> Tensor:
    """A mask, bool ``[num_edges]``: each edge stays with probability ``1 - drop``. Collective.

    Drawn as attention dropout draws: by a seed from rank 0's torch generator and by what dropout knows the edge by, so
    that the same edges stay whatever the number of workers.
    """
    ones = torch.ones(relation.num_edges, 1)
    drawn = expression.dropout(expression.load("e", ones), drop, agreed_seed())
    return expression.evaluate(relation, drawn, None).view(-1) != 0


# ---- making graphs of some edges ---------------------------------------------


def first_ids(counts: Tensor) -> Tensor:
    """The first id of each set of nodes on each worker, int64 ``[sets, workers]``: ids over all sets run worker by
    worker, and in each set by set.

    :param counts: nodes of each set on each worker, int64 ``[sets, workers]``
    """
    flat = counts.t().reshape(-1)
    return (flat.cumsum(0) - flat).view(*counts.t().shape).t()


def graph_of_sets(counts: Tensor, relations: Sequence[Tuple[int, int, Tensor, Tensor]]) -> NativeGraph:
    """An engine graph. Collective.

    :param counts: as of :func:`first_ids`
    :param relations: for each: the set that its edges begin at, the set that they end at, and ids of both over all
        sets, int64 ``[edges]``; those that they end at are this worker's
    """
    names = [(str(source), str(n), str(target)) for n, (source, target, *_) in enumerate(relations)]
    kinds, ends = [str(n) for n in range(len(counts))], [(src, dst) for _, _, src, dst in relations]
    handle = _session.current().handle
    return NativeGraph(blocks.graph_from_relations(handle, kinds, names, counts.contiguous(), ends))


def _native(counts: Tensor, relations: Sequence[Tuple[int, int, Relation, Optional[Tensor]]]) -> NativeGraph:
    """An engine graph. Collective.

    :param counts: rows of each set of nodes on each worker, int64 ``[sets, workers]``
    :param relations: for each: the set that its edges begin at, the set that they end at, where its edges are from, and
        the positions of those to take; ``None``: all
    """
    starts, rank = first_ids(counts), _session.current().rank
    made = []
    for source, target, relation, positions in relations:
        columns, rows = edge_ends(relation)
        if positions is not None:
            columns, rows = columns[positions], rows[positions]
        src = starts[source][relation.columns_owner()[columns]] + relation.columns_global()[columns]
        made.append((source, target, src.contiguous(), (rows + starts[target, rank]).contiguous()))
    return graph_of_sets(counts, made)


def _with_edges(state: GraphState, stay: Dict[CanonicalEtype, Tensor], store_ids: bool) -> GraphState:
    """The same nodes with some of the edges of some relations; columns of nodes are shared. Collective."""
    kinds = list(state.nodes)
    counts = torch.tensor([state.nodes[kind].starts for kind in kinds], dtype=torch.int64).diff(dim=1)
    old = state.relations
    native = _native(
        counts, [(kinds.index(r.canonical[0]), kinds.index(r.canonical[2]), r, stay.get(r.canonical)) for r in old]
    )
    made = [Relation(native, n, relation.canonical) for n, relation in enumerate(old)]
    agree_on_degrees(made)
    frames = dict(state.edge_frames)
    for relation, before in zip(made, old):
        positions = stay.get(relation.canonical)
        if positions is None:
            relation.edge_keys = before.edge_keys
        else:
            old_frame = state.edge_frames[relation.canonical]
            frames[relation.canonical] = edges_from(relation, before, old_frame, partial(_picked, positions))
            if store_ids:
                frames[relation.canonical]["_ID"] = positions
    return state.with_relations(made, frames)


def _some_edges(space: EdgeSpace, positions: Tensor) -> EdgeSpace:
    """Some edges of a relation, also of a block, as a relation of their own. Collective."""
    relation = space.relation
    counts = of_every_rank(torch.tensor([relation.num_src, relation.num_dst])).T
    part = Relation(_native(counts, [(0, 1, relation, positions)]), 0, relation.canonical)
    frames = {relation.canonical: edges_from(part, relation, space.edge, partial(_picked, positions))}
    return EdgeSpace(space.state.with_relations([part], frames), part, positions)


def edges_from(
    relation: Relation,
    before: Relation,
    old: EdgeFrame,
    change: Callable[[Tensor, str], Tensor],
    keys: Optional[Callable[[Tensor, str], Tensor]] = None,
) -> EdgeFrame:
    """Columns of edges made of those of another graph's, as they are now, when they are asked for. What dropout knows
    the edges by is made likewise, where that graph knew.

    :param change: makes a column of another one and its name
    :param keys: what is done to those in place of ``change``
    """
    frame = EdgeFrame(relation.canonical[1], relation.num_edges)
    for key, column in old.snapshot().items():
        frame.later(key, _changed(column, key, change))
    relation.edge_keys = None if before.edge_keys is None else _changed(before.edge_keys, "", keys or change)
    return frame


def _picked(positions: Tensor, values: Tensor, name: str) -> Tensor:
    return values[positions]


def _changed(
    column: Union[Tensor, Callable[[], Tensor]], name: str, change: Callable[[Tensor, str], Tensor]
) -> Callable[[], Tensor]:
    return lambda: change(column if isinstance(column, Tensor) else column(), name)


# ---- rows of columns ---------------------------------------------------------


def _rows_of(columns: Mapping[str, Tensor], rows: Tensor, instead: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Some rows of all columns, picked when they are read; ``instead`` has columns of those rows that go first."""

    def read(side: str, name: str) -> Tensor:
        return instead[name] if name in instead else columns[name].index_select(0, rows)

    return Columns("n", list({**dict.fromkeys(columns), **instead}), read)


def _mask(answers: Tensor, rows: int, who: str) -> Tensor:
    if not isinstance(answers, Tensor) or answers.numel() != rows:
        shape = tuple(answers.shape) if isinstance(answers, Tensor) else type(answers).__name__
        raise ValueError(f"{who}: the function gave {shape} for {rows} rows: it must return a bool for each")
    return answers.reshape(rows).bool()
