"""Eigenvalues and eigenvectors of the Laplacian matrix of an undirected graph."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch
from torch import Tensor

from sar.distributed.agreement import agreed_seed

from .adjacency import Adjacency, uniform
from .lanczos import Eigen, smallest


@torch.no_grad()
def eigenvectors(
    adjacency: Adjacency, k: int, self_loops: bool, tolerance: float, most: int, columns: int = 0
) -> Eigen:
    """The k eigenvectors after the first of ``I - D^-1/2 A D^-1/2``. Collective.

    Each has the sign that makes its inner product with numbers that follow from original ids positive.

    :param self_loops: whether those of the graph count; they do in DGL, and do not in PyG
    :raises ValueError: a directed graph, or as many eigenvectors as nodes
    """
    if not 0 < k < adjacency.num_nodes:
        raise ValueError(f"{k} eigenvectors of a graph of {adjacency.num_nodes} nodes: give 1 to one fewer than nodes")
    found = smallest(adjacency, _normalized(adjacency, self_loops), k + 1, tolerance, most, columns)
    values, vectors, residuals = (one[..., 1:] for one in found)
    along = adjacency.agreed(adjacency.total(vectors.T @ uniform(adjacency, -1)))
    return Eigen(values, vectors * torch.where(along < 0, -1.0, 1.0), residuals)


@torch.no_grad()
def largest(adjacency: Adjacency, normalization: Optional[str], tolerance: float, most: int) -> float:
    """The largest eigenvalue of the Laplacian matrix. Collective.

    :param normalization: None: ``D - A``; ``"sym"`` or ``"rw"``, which have the same eigenvalues
    :raises ValueError: a directed graph, or another normalization
    """
    if normalization not in (None, "sym", "rw"):
        raise ValueError(f"normalization is {normalization!r}: give None, 'sym' or 'rw'")
    product = _plain(adjacency) if normalization is None else _normalized(adjacency, False)
    found = smallest(adjacency, lambda x: product(x).neg_(), 1, tolerance, most)
    return -float(found.values[0])


def random_signs(vectors: Tensor) -> Tensor:
    """Each column times 1 or -1, drawn for all workers, in place. Collective."""
    generator = torch.Generator().manual_seed(agreed_seed())
    return vectors.mul_(torch.randint(0, 2, (vectors.shape[1],), generator=generator) * 2 - 1)


def _parts(adjacency: Adjacency, self_loops: bool) -> Tuple[Tensor, Tensor]:
    """Degrees and the weights of self loops to be left out, ``[own nodes, 1]``."""
    if not adjacency.symmetric():
        raise ValueError(
            "eigenvectors are those of an undirected graph, in which every edge has its reverse with the same weight: "
            "make it undirected before it is partitioned (sar ingest --symmetrize, torch_geometric.utils.to_undirected "
            "or dgl.to_bidirected)"
        )
    degrees = adjacency.degrees(out=False)
    loops = torch.zeros_like(degrees) if self_loops else adjacency.loops()
    return (degrees - loops).view(-1, 1), loops.view(-1, 1)


def _normalized(adjacency: Adjacency, self_loops: bool) -> Callable[[Tensor], Tensor]:
    degrees, loops = _parts(adjacency, self_loops)
    root = degrees.clamp(min=0).rsqrt()
    root.masked_fill_(root.isinf(), 0)
    inner = root.square() * loops

    def product(x: Tensor) -> Tensor:
        return adjacency.sums(x * root).mul_(-root).add_(x).addcmul_(x, inner)

    return product


def _plain(adjacency: Adjacency) -> Callable[[Tensor], Tensor]:
    degrees, loops = _parts(adjacency, False)
    both = degrees + loops
    return lambda x: adjacency.sums(x).neg_().addcmul_(x, both)
