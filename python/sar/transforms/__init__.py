"""Whole-graph utilities on graphs split over workers: positional encodings, PageRank, degree profiles, homophily.

The functions of scripts are here; what they need is imported when one of them is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Optional, Tuple, Union, overload

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "degree_profile",
    "homophily",
    "laplacian_lambda_max",
    "laplacian_pe",
    "pagerank",
    "random_walk_pe",
]

MEMORY = 256 << 20
"""Bytes that columns of a random walk may take on a worker."""
MOST = 10_000
"""Products."""


def random_walk_pe(
    edges: Any, walk_length: int, edge_weight: Optional[Tensor] = None, *, memory: int = MEMORY
) -> Tensor:
    """The probabilities that a random walk is where it began after 1, 2 .. ``walk_length`` steps. Collective.

    The positional encoding of "Graph Neural Networks with Learnable Structural and Positional Representations" (Dwivedi
    et al., 2021), as ``torch_geometric.transforms.AddRandomWalkPE`` computes it, exact. Parallel edges count each.

    Time: ``walk_length / 2`` products of the adjacency matrix with as many columns as there are nodes, of a directed
    graph ``walk_length``. So it grows with nodes times edges, also in PyG and DGL, where powers of the matrix fill up.

    :param edges: an edge index, a data object of PyG, or a graph, of one relation from a node type to itself
    :param edge_weight: of this worker's edges, ``[edges]``; 1 each by default. A step takes an edge with probability
        weight / max(1, the sum of those of the out-edges of a node)
    :param memory: bytes that blocks of columns may take on a worker, beside the window
    :returns: ``[own nodes, walk_length]``, of the default dtype, or of that of the weights
    :raises ValueError: a length below 1, two node types, or weights that do not fit
    :raises TypeError: no graph split over workers

    Wire: for each product a number for each halo row and column.
    """
    import torch

    from . import adjacency, walks

    if walk_length < 1:
        raise ValueError(f"random_walk_pe: walk_length is {walk_length}; give at least 1")
    found = adjacency.adjacency_of("sar.transforms.random_walk_pe", edges, edge_weight)
    dtype = torch.get_default_dtype() if edge_weight is None else edge_weight.dtype
    return walks.landing(found, walk_length, found.degrees(out=True).clamp(min=1), dtype, memory)


@overload
def laplacian_pe(
    edges: Any,
    k: int,
    edge_weight: Optional[Tensor] = ...,
    *,
    self_loops: bool = ...,
    random_signs: bool = ...,
    return_eigenvalues: Literal[False] = ...,
    tolerance: float = ...,
    max_products: int = ...,
) -> Tensor: ...
@overload
def laplacian_pe(
    edges: Any,
    k: int,
    edge_weight: Optional[Tensor] = ...,
    *,
    self_loops: bool = ...,
    random_signs: bool = ...,
    return_eigenvalues: Literal[True],
    tolerance: float = ...,
    max_products: int = ...,
) -> Tuple[Tensor, Tensor]: ...
def laplacian_pe(
    edges: Any,
    k: int,
    edge_weight: Optional[Tensor] = None,
    *,
    self_loops: bool = False,
    random_signs: bool = False,
    return_eigenvalues: bool = False,
    tolerance: float = 1e-8,
    max_products: int = MOST,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Eigenvectors of the normalized Laplacian matrix ``I - D^-1/2 A D^-1/2`` of an undirected graph. Collective.

    The positional encoding of "Benchmarking Graph Neural Networks" (Dwivedi et al., 2020): those of the k smallest
    eigenvalues after the first, as ``torch_geometric.transforms.AddLaplacianEigenvectorPE`` gives them. By the block
    Lanczos method with restarts, in float64: a worker holds some 16 (k + 1) columns of own rows, for large k fewer.

    An eigenvector of an eigenvalue that occurs once has the same sign for any number of workers. Of one that occurs
    several times, such as 0 in a graph of several components, the space that the eigenvectors span is defined, and not
    each of them.

    :param edges: an edge index, a data object of PyG, or a graph, of one relation from a node type to itself
    :param edge_weight: of this worker's edges, ``[edges]``; 1 each by default
    :param self_loops: whether those of the graph count
    :param random_signs: multiply each eigenvector by 1 or -1, by rank 0's torch generator, as PyG does
    :param return_eigenvalues: return them too
    :param tolerance: the largest norm of ``L v - value v``; eigenvalues are as exact as its square
    :param max_products: with blocks of k + 1 columns
    :returns: float64 ``[own nodes, k]``, ascending, of norm 1 over all workers; and the eigenvalues, float64 ``[k]``
    :raises ValueError: a directed graph, k that is not from 1 to nodes - 1, two node types, weights that do not fit
    :raises TypeError: no graph split over workers
    :raises RuntimeError: so many products are not enough

    Wire: for each product k + 1 numbers for each halo row, and an all-reduce of some 16 (k + 1)^2 numbers three times.
    """
    from . import adjacency, laplacian

    made = adjacency.adjacency_of("sar.transforms.laplacian_pe", edges, edge_weight)
    found = laplacian.eigenvectors(made, k, self_loops, tolerance, max_products)
    vectors = laplacian.random_signs(found.vectors) if random_signs else found.vectors
    return (vectors, found.values) if return_eigenvalues else vectors


def laplacian_lambda_max(
    edges: Any,
    edge_weight: Optional[Tensor] = None,
    normalization: Optional[str] = "sym",
    *,
    tolerance: float = 1e-8,
    max_products: int = MOST,
) -> float:
    """The largest eigenvalue of the Laplacian matrix of an undirected graph without self loops. Collective.

    :param edges: as of :func:`laplacian_pe`
    :param edge_weight: likewise
    :param normalization: None: ``D - A``; ``"sym"``: ``I - D^-1/2 A D^-1/2``; ``"rw"``: ``I - D^-1 A``
    :param tolerance: likewise
    :param max_products: with vectors
    :returns: the same on every worker
    :raises ValueError, TypeError, RuntimeError: as :func:`laplacian_pe`
    """
    from . import adjacency, laplacian

    made = adjacency.adjacency_of("sar.transforms.laplacian_lambda_max", edges, edge_weight)
    return laplacian.largest(made, normalization, tolerance, max_products)


def pagerank(
    edges: Any,
    alpha: float = 0.85,
    personalization: Optional[Tensor] = None,
    edge_weight: Optional[Tensor] = None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
) -> Tensor:
    """PageRank by power iteration: where a walk is that begins anew with probability 1 - alpha in each step, and where
    a node has no out-edge. Collective.

    As ``networkx.pagerank`` has it. With several columns of ``personalization`` it is several vectors at once.

    :param edges: an edge index, a data object of PyG, or a graph, of one relation from a node type to itself
    :param alpha: from 0 to 1, without 1
    :param personalization: where walks begin, of own nodes, ``[own nodes]`` or ``[own nodes, w]``, at least 0; a column
        is divided by its sum over all workers. By default at any node
    :param edge_weight: of this worker's edges, ``[edges]``; a step takes an edge with a probability that is
        proportional to it; 1 each by default
    :param tolerance: of the sum over nodes of the last change
    :param max_iterations: products
    :returns: float64, of the shape of ``personalization``, or ``[own nodes]``; sums over all workers are 1
    :raises ValueError: alpha or personalization that is out of range, two node types, or weights that do not fit
    :raises TypeError: no graph split over workers
    :raises RuntimeError: so many iterations are not enough

    Wire: for each product as many numbers for each halo row as there are columns.
    """
    from . import adjacency, walks

    if not 0 <= alpha < 1:
        raise ValueError(f"pagerank: alpha is {alpha}; give a number from 0 to 1, without 1")
    found = adjacency.adjacency_of("sar.transforms.pagerank", edges, edge_weight, personalization)
    return walks.pagerank(found, alpha, personalization, tolerance, max_iterations)


def degree_profile(edges: Any) -> Tensor:
    """The degree of each node, and minimum, maximum, mean and standard deviation of those of its neighbours.
    Collective.

    The Local Degree Profile of "A Simple yet Effective Baseline for Non-attribute Graph Classification" (Cai and Wang,
    2018), as ``torch_geometric.transforms.LocalDegreeProfile`` has it: degrees count out-edges, and neighbours are
    where these end. 0 where there are none.

    :param edges: an edge index, a data object of PyG, or a graph, of one relation from a node type to itself
    :returns: float32 ``[own nodes, 5]``
    :raises ValueError: two node types
    :raises TypeError: no graph split over workers
    """
    from . import adjacency, profiles

    return profiles.degree_profile(adjacency.adjacency_of("sar.transforms.degree_profile", edges)).float()


def homophily(edges: Any, y: Tensor, method: str = "edge") -> float:
    """How likely neighbours have the same label, over the nodes and edges of all workers. Collective.

    As ``torch_geometric.utils.homophily`` has it.

    :param edges: an edge index, a data object of PyG, or a graph, of one relation from a node type to itself
    :param y: labels of own nodes, ``[own nodes]``
    :param method: ``"edge"``: the share of edges whose ends have the same label ("Beyond Homophily in Graph Neural
        Networks", Zhu et al., 2020); ``"node"``: the mean of such shares of the in-edges of each node ("Geom-GCN", Pei
        et al., 2020); ``"edge_insensitive"``: the mean over classes of what such shares exceed the share of nodes of a
        class by ("Large Scale Learning on Non-Homophilous Graphs", Lim et al., 2021)
    :returns: from 0 to 1, the same on every worker; NaN where there are no edges
    :raises ValueError: another method, labels that do not fit, or fewer than two classes where classes are compared
    :raises TypeError: no graph split over workers
    """
    from . import profiles

    return profiles.homophily(edges, y, method)
