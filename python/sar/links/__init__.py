"""Links: rows of nodes anywhere in the graph, pairs of nodes that are no edges, and scores of both.

The functions of scripts are here; what they need is imported when one of them is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple, TypeVar, Union

from torch import Tensor

if TYPE_CHECKING:
    from sar.graph.edge_index.rows import EdgeEnds

    from .negative import Count, Sizes
    from .node_ids import NodeIds

Given = TypeVar("Given")


def fetch(x: Tensor, ids: Tensor, data: Any = None) -> Tensor:
    """Rows of any nodes: ``out[i]`` is the row of node ``ids[i]``, whichever worker owns it. Collective; every worker
    asks for as many as it likes, also for none.

    ::

        rows = sar.fetch(z, ids)

    A row that a worker asks for several times travels once. Rows arrive in the window. Gradients are added at the owner
    of a row in the order of ranks, in float32 at least.

    :param x: rows of own nodes, ``[own nodes, ...]`` of any dtype, the same dtype and shape of rows on every worker;
        differentiable where it is float32, float64 or bfloat16
    :param ids: int64 ``[n]``: ids as ``graph.column_nodes()`` and sampled blocks have them, counted by node type over
        all workers, those of rank 0 first
    :param data: a graph, an edge index, or a data object of PyG: then ids are original ids, as ``data.n_id`` has them
    :returns: ``[n, ...]``
    :raises TypeError: no tensor of own nodes, ids that are not int64 in one dimension, or gradients of another dtype.
        This and the next are raised on every worker, as :class:`sar.RemoteError` where the arguments were right
    :raises ValueError: an id that no node has, or rows that differ between workers

    Wire: a row for each row of another worker, and as much again in backward; 8 bytes more for each id that ``data``
    has looked up.
    """
    from .rows import fetch as call

    return call(x, ids, data)


def negative_sampling(
    edges: Given,
    num_nodes: Sizes = None,
    num_neg_samples: Count = None,
    method: str = "sparse",
    force_undirected: bool = False,
    *,
    seed: Optional[int] = None,
) -> Given:
    """Pairs of nodes of the whole graph that are no edges, as edges of a graph of their own. Collective.

    ::

        negative = sar.negative_sampling(data.edge_index)
        scores = (z[negative[0]] * z[negative[1]]).sum(-1)

    It takes what ``torch_geometric.utils.negative_sampling`` does. Pairs are distinct, uniform, and no self loops where
    both ends are of one type. All workers together draw the same for any number of workers, where the partition has
    original ids, as those of SAR have. Each worker gets the pairs that end at its own nodes: scoring them fetches rows
    of sources, each once, in the window.

    :param edges: an edge index, a data object of PyG with one, or a graph of one relation
    :param num_nodes: own nodes or those of all workers, as a script has it; of both ends where these are of two types
    :param num_neg_samples: pairs that this worker counts, which all workers add up; a float: so many for each edge of
        all workers; by default one for each. There are fewer where the graph has fewer
    :param method: as PyG has it; makes no difference
    :param force_undirected: half of the pairs are those of the other half turned round
    :param seed: what the pairs follow from, the same on every worker; by default rank 0's torch generator gives one
    :returns: an edge index, int64 ``[2, pairs of this worker]``; a graph where a graph was given
    :raises ValueError: a number of nodes that is not there
    :raises TypeError: no graph split over workers
    """
    from .negative import negative_sampling as call

    return call(edges, num_nodes, num_neg_samples, method, force_undirected, seed)


def batched_negative_sampling(
    edges: Given,
    batch: Union[Tensor, Tuple[Tensor, Tensor]],
    num_neg_samples: Count = None,
    method: str = "sparse",
    force_undirected: bool = False,
    *,
    seed: Optional[int] = None,
) -> Given:
    """:func:`negative_sampling` within each graph of a batch. Collective.

    :param batch: the graph of each own node, int64, ascending with original ids; of both ends where these are of two
        types
    :param num_neg_samples: pairs for each graph, of all workers; a float: so many for each edge of a graph; by default
        one for each
    :raises ValueError: a batch vector that does not ascend
    """
    from .negative import batched_negative_sampling as call

    return call(edges, batch, num_neg_samples, method, force_undirected, seed)


def structured_negative_sampling(
    edges: Any, num_nodes: Optional[int] = None, contains_neg_self_loops: bool = True, *, seed: Optional[int] = None
) -> Tuple[Union[EdgeEnds, Tensor], Union[EdgeEnds, Tensor], NodeIds]:
    """For each edge ``(i, j)`` of this worker a node k such that there is no edge ``(i, k)``. Collective.

    ::

        i, j, k = sar.structured_negative_sampling(data.edge_index)
        loss = F.margin_ranking_loss((z[i] * z[j]).sum(-1), (z[i] * z[k]).sum(-1), ones)

    It takes what ``torch_geometric.utils.structured_negative_sampling`` does. k is uniform over the nodes of all
    workers, and follows from the seed and the original ids of i and j alone.

    :param edges: an edge index, a data object of PyG with one, or a graph of one relation and node type
    :param num_nodes: taken, and not needed
    :param contains_neg_self_loops: whether k may be i
    :param seed: the same on every worker; by default rank 0's torch generator gives one
    :returns: the rows of the edge index, and k: ids, with which ``z[k]`` fetches rows; int64 ``[edges]`` each
    :raises ValueError: a node with edges to all others, or two node types
    :raises TypeError: no graph split over workers
    """
    from .structured import structured_negative_sampling as call

    return call(edges, num_nodes, contains_neg_self_loops, seed)


def link_metrics(positive: Tensor, negative: Tensor, hits: Sequence[int] = (10, 50, 100)) -> Dict[str, Optional[float]]:
    """How well scores tell edges from pairs that are none, over those of all workers. Collective.

    - ``auc``: the area under the ROC curve; of equal scores half of the pairs count
    - ``ap``: average precision
    - ``mrr``: the mean of 1 / rank of each edge among the negatives, of equal scores the middle of the ranks
    - ``hits@K``: the share of edges that score higher than the K-th highest negative

    The first two and the last are those of sklearn and OGB, and all are exact: they come from counts. A worker holds
    the scores of the edges of all workers, and of the negatives its own alone.

    :param positive: of this worker's edges, ``[n]``
    :param negative: of this worker's pairs, ``[m]``, which all edges are compared with; or ``[n, k]``: those of each
        edge, and then ``mrr`` and ``hits@K`` compare an edge with its own
    :param hits: each K
    :returns: by name; None where a worker has no edges, or none has pairs
    :raises ValueError: shapes that do not fit, or NaN
    """
    from .scores import link_metrics as call

    return call(positive, negative, hits)
