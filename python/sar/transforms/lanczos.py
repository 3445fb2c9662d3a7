"""The smallest eigenvalues of a symmetric matrix of which only products are known, and their eigenvectors.

The block Lanczos method with thick restarts (Wu and Simon, "Thick-Restart Lanczos Method for Large Symmetric Eigenvalue
Problems", 2000). A block has as many columns as eigenvectors are wanted, so an eigenvalue is found as often as it
occurs: graphs of several components have 0 that often. Inner products are over the rows of all workers.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

import torch
from torch import Tensor

from .adjacency import Adjacency, uniform

_BLOCKS, _FEWEST, _BASIS = 16, 3, 160
_ROWS = 1 << 16
"""Rows of the basis that are multiplied at once, so that a restart needs no second basis."""


class Eigen(NamedTuple):
    """Eigenvalues, ascending, float64 ``[n]``; eigenvectors ``[own nodes, n]``; and the norms of ``A v - value v``."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor


def columns_of_basis(wanted: int) -> Tuple[int, int]:
    """The fewest columns of a basis that do, and how many are best: more of them need fewer products."""
    return _FEWEST * wanted, max((_FEWEST + 1) * wanted, min(_BLOCKS * wanted, _BASIS))


class _Basis:
    """Orthonormal columns, and ``H = V.T A V``."""

    def __init__(self, adjacency: Adjacency, columns: int) -> None:
        self.adjacency = adjacency
        self.all = torch.empty(adjacency.num_own, columns, dtype=torch.float64)
        self.products = torch.zeros(columns, columns, dtype=torch.float64)
        self.size = 0

    @property
    def columns(self) -> Tensor:
        return self.all[:, : self.size]

    def without(self, w: Tensor) -> Tensor:
        """Takes the parts along the basis out of a block, in place; gives what they were."""
        if not self.size or not w.shape[1]:
            return w.new_zeros(self.size, w.shape[1])
        parts = self.adjacency.total(self.columns.T @ w)
        w.addmm_(self.columns, parts, alpha=-1)
        again = self.adjacency.total(self.columns.T @ w)  # rounding leaves some after once
        w.addmm_(self.columns, again, alpha=-1)
        return parts + again

    def add(self, q: Tensor, product: Tensor) -> None:
        """Adds a block, and takes the parts along all columns out of ``A @ q``, in place."""
        old, self.size = self.size, self.size + q.shape[1]
        self.all[:, old : self.size] = q
        parts = self.without(product)
        own = parts[old:]
        self.products[: self.size, old : self.size] = parts
        self.products[old : self.size, : self.size] = parts.T
        self.products[old : self.size, old : self.size] = (own + own.T) / 2

    def eigen(self) -> Tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of H."""
        return _eigen(self.adjacency, self.products[: self.size, : self.size])

    def restart(self, values: Tensor, kept: Tensor) -> None:
        """Keeps combinations of columns alone."""
        count = kept.shape[1]
        for rows in self.all.split(_ROWS):
            rows[:, :count] = rows[:, : self.size] @ kept
        self.size = count
        self.products[:count, :count] = torch.diag(values)

    def new_block(self, w: Tensor) -> Tensor:
        """Orthonormal columns that span what a block has beside the basis; there may be fewer."""
        if not w.shape[1]:
            return w
        norms = self._gram(w).diagonal().clamp(min=0).sqrt()
        w = w[:, norms > 0] / norms[norms > 0]
        values, turn = _eigen(self.adjacency, self._gram(w))
        w = w @ (turn[:, values > 1e-12] / values[values > 1e-12].sqrt())
        self.without(w)
        values, turn = _eigen(self.adjacency, self._gram(w))
        return w @ (turn[:, values > 0.25] / values[values > 0.25].sqrt())

    def _gram(self, w: Tensor) -> Tensor:
        product = w.T @ w
        return self.adjacency.agreed(self.adjacency.total(product)) if len(product) else product


def _eigen(adjacency: Adjacency, matrix: Tensor) -> Tuple[Tensor, Tensor]:
    if not len(matrix):
        return matrix.new_empty(0), matrix
    values, vectors = torch.linalg.eigh(matrix)
    return adjacency.agreed(values), adjacency.agreed(vectors.contiguous())


def _drawn(adjacency: Adjacency, width: int, seed: int) -> Tensor:
    return torch.stack([uniform(adjacency, seed + column) for column in range(width)], 1)


@torch.no_grad()
def smallest(
    adjacency: Adjacency,
    product: Callable[[Tensor], Tensor],
    wanted: int,
    tolerance: float,
    most: int,
    columns: int = 0,
) -> Eigen:
    """The ``wanted`` smallest eigenvalues. Collective; begins with numbers that follow from original ids.

    Memory: ``columns`` columns, and four blocks of ``wanted``.

    :param product: with the matrix: ``[own nodes, w]`` to such, float64. Collective
    :param wanted: at most as many as there are nodes
    :param tolerance: the largest norm of ``A v - value v`` that will do
    :param most: products with a block
    :param columns: of the basis; 0: what is best
    :raises RuntimeError: so many products are not enough
    """
    columns = min(columns or columns_of_basis(wanted)[1], adjacency.num_nodes)
    basis = _Basis(adjacency, columns)
    block, drawings = basis.new_block(_drawn(adjacency, wanted, 0)), 1
    for _ in range(most):
        after = product(block)
        basis.add(block, after)
        values, turn = basis.eigen()
        last = turn[basis.size - block.shape[1] :, :wanted]
        rest = basis._gram(after)
        residuals = (last * (rest @ last)).sum(0).clamp(min=0).sqrt()
        done = basis.size >= wanted and float(residuals.max()) <= tolerance
        if done or basis.size == adjacency.num_nodes:
            return Eigen(values[:wanted], basis.columns @ turn[:, :wanted], residuals)
        block = basis.new_block(after)
        while not block.shape[1] and drawings < 10:  # all products lie in the basis: others may be outside of it
            fresh = _drawn(adjacency, wanted, drawings * wanted)
            basis.without(fresh)
            block, drawings = basis.new_block(fresh), drawings + 1
        if not block.shape[1]:
            return Eigen(values[:wanted], basis.columns @ turn[:, :wanted], residuals)
        if basis.size + block.shape[1] > columns:
            kept = min(basis.size, max(2 * wanted, 2 * columns // 5), columns - block.shape[1])
            basis.restart(values[:kept], turn[:, :kept])
    raise RuntimeError(
        f"after {most} products the largest of {wanted} residuals is {float(residuals.max()):.1e}, and not "
        f"{tolerance:.1e}: give a larger tolerance, fewer eigenvectors or more products"
    )
