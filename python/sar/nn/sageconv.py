"""GraphSAGE (Hamilton, Ying and Leskovec, 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sar.autograd.fused.scaled_product import sage_conv

from ._propagate import Features, Graph, as_pair, first_rows, propagate, sizes

AGGREGATORS = ("mean", "gcn", "pool", "lstm")


class SAGEConv(nn.Module):
    """``out[i] = x[i] W_self + aggregate over in-edges (j -> i) of x[j] W_neigh + b``.

    Arguments, parameters and results are those of ``dgl.nn.SAGEConv``, so state dicts fit either.

    :param in_feats: width of the input, or a pair: of sources and of destinations
    :param out_feats: width of the output
    :param aggregator_type: ``"mean"``; ``"gcn"``: the mean with the node itself, and no W_self; ``"pool"``: the
        largest of ``relu(x[j] W_pool + b_pool)``; ``"lstm"``: the last state of an LSTM over the neighbours in the
        order of edge ids
    :param feat_drop: dropout of the input
    :param bias: learn b, ``[out_feats]``
    :param norm: a function applied last
    :param activation: a function applied before norm
    :raises ValueError: another aggregator
    """

    def __init__(
        self,
        in_feats: Union[int, Tuple[int, int]],
        out_feats: int,
        aggregator_type: str,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Optional[Callable[[Tensor], Tensor]] = None,
        activation: Optional[Callable[[Tensor], Tensor]] = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in AGGREGATORS:
            raise ValueError(f"SAGEConv: aggregator {aggregator_type!r} is unknown; give one of {AGGREGATORS}")
        self.src_feats, self.dst_feats = sizes(in_feats)
        self.out_feats, self.aggregator_type = out_feats, aggregator_type
        self.norm, self.activation = norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(self.src_feats, self.src_feats)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(self.src_feats, self.src_feats, batch_first=True)
        self.fc_neigh = nn.Linear(self.src_feats, out_feats, bias=False)
        self.bias: Optional[nn.Parameter] = None
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(self.dst_feats, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(torch.zeros(out_feats))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform initialization."""
        gain = nn.init.calculate_gain("relu")
        if self.aggregator_type == "pool":
            nn.init.xavier_uniform_(self.fc_pool.weight, gain=gain)
        if self.aggregator_type == "lstm":
            self.lstm.reset_parameters()
        if self.aggregator_type != "gcn":
            nn.init.xavier_uniform_(self.fc_self.weight, gain=gain)
        nn.init.xavier_uniform_(self.fc_neigh.weight, gain=gain)

    def forward(self, graph: Graph, feat: Features, edge_weight: Optional[Tensor] = None) -> Tensor:
        """Collective in forward and backward.

        :param graph: a graph manager or block
        :param feat: ``[num_src, in_feats]``, or a pair of source and destination features
        :param edge_weight: factors of the messages, ``[num_edges]`` or ``[num_edges, 1]``
        :returns: ``[num_dst, out_feats]``
        :raises ValueError: shapes that do not fit
        """
        found = sage_conv(graph, self, feat, edge_weight, self.aggregator_type)
        if found is not None:
            return found
        if isinstance(feat, tuple):
            x, own = self.feat_drop(feat[0]), self.feat_drop(feat[1])
        else:
            x, own = as_pair(graph, self.feat_drop(feat))
        out = self._neighbours(graph, x, own, edge_weight)
        if self.aggregator_type != "gcn":
            out = self.fc_self(own) + out
        elif self.bias is not None:
            out = out + self.bias
        if self.activation is not None:
            out = self.activation(out)
        return out if self.norm is None else self.norm(out)

    if TYPE_CHECKING:
        __call__ = forward

    def _neighbours(self, graph: Any, x: Tensor, own: Tensor, edge_weight: Optional[Tensor]) -> Tensor:
        if self.aggregator_type == "pool":
            pooled = propagate(graph, F.relu(self.fc_pool(x)), "max", edge_weight)
            return self.fc_neigh(pooled)
        if self.aggregator_type == "lstm":
            return self.fc_neigh(propagate(graph, x, self._lstm_reducer, edge_weight))
        narrow_first = self.src_feats > self.out_feats
        if self.aggregator_type == "mean":
            out = propagate(graph, self.fc_neigh(x) if narrow_first else x, "mean", edge_weight)
        else:
            if narrow_first:
                shared = x.data_ptr() == own.data_ptr()  # own rows are the first of x
                x, own = self.fc_neigh(x), own if shared else self.fc_neigh(own)
                own = first_rows(x, own.shape[0]) if shared else own
            degrees = graph.in_degrees().to(x.dtype).unsqueeze(-1)
            out = (propagate(graph, x, "sum", edge_weight) + own) / (degrees + 1)
        return out if narrow_first else self.fc_neigh(out)

    def _lstm_reducer(self, nodes: Any) -> Dict[str, Tensor]:
        _, (state, _) = self.lstm(nodes.mailbox["_m"])
        return {"_out": state.squeeze(0)}
