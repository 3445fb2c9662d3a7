"""Message passing on graph managers: ``update_all`` and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, MutableMapping, NamedTuple, Optional, Tuple, Union

from torch import Tensor

from .. import ops
from .._book import CanonicalEtype
from ..ops import expression
from ..ops.expression import Expr
from . import builtin
from .frame import EdgeFrame, NodeFrame, is_lazy

if TYPE_CHECKING:
    from .graphshard import Rows
    from .relation import Relation

Etype = Union[str, CanonicalEtype]
LABELS = {"u": "srcdata", "v": "dstdata", "e": "edata"}


class Sides(NamedTuple):
    """A relation and the columns at its ends."""

    relation: Relation
    source: NodeFrame
    target: NodeFrame
    edge: EdgeFrame

    def columns(self, side: str) -> MutableMapping[str, Any]:
        return {"u": self.source.srcdata, "v": self.target.dstdata, "e": self.edge}[side]

    def rows(self, side: str) -> Tuple[int, str]:
        """How many rows a column of this side has, and of what."""
        relation = self.relation
        return {
            "u": (relation.num_src, "source nodes"),
            "v": (relation.num_dst, "destination nodes"),
            "e": (relation.num_edges, "in-edges"),
        }[side]


class MessagePassing:
    """What a graph manager inherits to pass messages along its relations."""

    _rows: Rows
    _relations: List[Relation]

    if TYPE_CHECKING:

        def _relation(self, etype: Optional[Etype]) -> Relation: ...

    def update_all(
        self,
        message_func: Any,
        reduce_func: Any,
        apply_node_func: Any = None,
        etype: Optional[Etype] = None,
    ) -> None:
        """Sends messages along all edges and reduces them at their destinations. Collective.

        :param message_func: a built-in message of ``dgl.function`` or :mod:`sar.function`. It reads ``srcdata``,
            ``dstdata`` and ``edata`` (float32 or float64, ``[rows, ...]``; what follows the rows broadcasts)
        :param reduce_func: ``sum``, ``mean``, ``max`` or ``min``; the result, ``[num_dst, ...]``, goes to ``dstdata``.
            Rows without edges give 0. Of equal messages, the gradient of max and min goes to the one that DGL picks
        :param etype: the relation, where there are several
        :raises KeyError: a column or the relation is missing; the error lists those there are
        :raises TypeError: dtype or device of a column
        :raises ValueError: shape of a column, or the reducer reads another field than the message writes
        """
        sides = self._sides(self._relation(etype))
        store(sides.target, passed(sides, message_func, reduce_func, apply_node_func))

    def apply_edges(self, func: Any, edges: Any = None, etype: Optional[Etype] = None) -> None:
        """Computes a column of edges. Collective.

        :param func: a built-in message; the result, ``[num_edges, ...]``, goes to ``edata``
        :param etype: the relation, where there are several
        :raises KeyError, TypeError, ValueError: as :meth:`update_all`
        """
        sides = self._sides(self._relation(etype))
        sent = builtin.message(func)
        if sent is None:
            raise NotImplementedError("Python functions of edges")
        sides.edge[sent.out_field] = edge_values(sides, sent)

    def _sides(self, relation: Relation) -> Sides:
        source, _, target = relation.canonical
        rows = self._rows
        return Sides(relation, rows.frames[source], rows.frames[target], rows.edge_frames[relation.canonical])


def store(frame: NodeFrame, results: Dict[str, Tensor]) -> None:
    """Makes results columns of destination nodes; in a full graph these are the source nodes as well."""
    (frame.ndata if frame.square else frame.dstdata).update(results)


def passed(sides: Sides, message_func: Any, reduce_func: Any, apply_node_func: Any) -> Dict[str, Tensor]:
    """What one relation's messages come to: columns of the destinations by name."""
    sent, received = builtin.message(message_func), builtin.reducer(reduce_func)
    if sent is None or received is None or apply_node_func is not None:
        raise NotImplementedError("Python functions")
    builtin.check_pair(sent, received)
    return {received.out_field: reduced(sides, sent, received.op)}


def reduced(sides: Sides, sent: builtin.Message, reduce: str) -> Tensor:
    """A built-in message with a built-in reducer."""
    if reduce in ("sum", "mean"):
        names = [f"{LABELS[term.side]}[{term.field!r}]" for term in sent.terms]
        if sent.name == "copy_u":
            return ops.copy_u(sides.relation, reduce, sides.source.srcdata[sent.terms[0].field], names[0])
        if sent.name in ("u_mul_e", "e_mul_u"):
            u, e = sorted(sent.terms, key=lambda term: term.side == "e")
            weight = sides.edge[e.field]
            if not is_lazy(weight):
                values = sides.source.srcdata[u.field], weight
                return ops.u_mul_e(sides.relation, reduce, *values, *sorted(names, key=lambda n: n.startswith("edata")))
    return expression.evaluate(sides.relation, written(sides, sent), reduce)


def edge_values(sides: Sides, sent: builtin.Message) -> Any:
    """A built-in message as a column of edges."""
    if sent.name == "copy_e":
        return sides.edge[sent.terms[0].field]
    return expression.evaluate(sides.relation, written(sides, sent), None)


def written(sides: Sides, sent: builtin.Message) -> Expr:
    """A built-in message as an expression.

    :raises KeyError, TypeError, ValueError: a column is missing or does not fit
    """
    names = [f"{LABELS[term.side]}[{term.field!r}]" for term in sent.terms]
    loaded = [_operand(sides, term, name) for term, name in zip(sent.terms, names)]
    if sent.op is None:
        return loaded[0]
    try:
        return expression.binary(sent.op, *loaded)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{names[0]} and {names[1]}: {error}") from None


def _operand(sides: Sides, term: builtin.Term, name: str) -> Expr:
    value = sides.columns(term.side)[term.field]
    if is_lazy(value):
        lazy: Expr = value.expr
        return lazy
    ops.check(value, *sides.rows(term.side), name)
    return expression.load(term.side, value)
