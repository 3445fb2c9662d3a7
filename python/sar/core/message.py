"""Message passing on graph managers: ``update_all`` and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from .. import ops
from .._book import CanonicalEtype
from .builtin import parse

if TYPE_CHECKING:
    from .graphshard import Rows
    from .relation import Relation

Etype = Union[str, CanonicalEtype]


class MessagePassing:
    """What a graph manager inherits to pass messages along its relations."""

    _rows: Rows

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

        :param message_func: ``copy_u`` or ``u_mul_e``, of ``dgl.function`` or :mod:`sar.function`. It reads
            ``srcdata`` (float32 or float64 ``[num_src, ...]``) and ``edata`` (the same dtype, ``[num_edges, ...]``)
        :param reduce_func: ``sum`` or ``mean``; the result, ``[num_dst, ...]``, goes to ``dstdata``. Rows without
            edges give 0
        :param etype: the relation, where there are several
        :raises NotImplementedError: another message or reducer
        :raises KeyError: a column is missing
        :raises TypeError, ValueError: dtype, device or shape of a column
        """
        relation = self._relation(etype)
        step = parse(message_func, reduce_func, apply_node_func)
        source, _, target = relation.canonical
        columns = self._rows.frames[source].srcdata
        u = columns[step.u_field]
        u_name = f"srcdata[{step.u_field!r}]"
        if step.e_field is None:
            out = ops.copy_u(relation, step.reduce, u, u_name)
        else:
            e = self._rows.edge_frames[relation.canonical][step.e_field]
            out = ops.u_mul_e(relation, step.reduce, u, e, u_name, f"edata[{step.e_field!r}]")
        frame = self._rows.frames[target]
        (frame.ndata if frame.square else frame.dstdata)[step.out_field] = out
