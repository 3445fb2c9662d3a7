"""Makes the batch norms of a model global."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from sar._engine import abi, session as _session
from sar.autograd.fused.prepared import BATCH_NORM, Plan, forward_of_class, prepared

from .batch_norm import DistributedBN1D

__all__ = ["convert_batchnorm", "plan"]


def convert_batchnorm(module: nn.Module) -> nn.Module:
    """Makes batch norm in a model global: every batch norm of torch and PyG takes its statistics over all workers.

    ``torch.nn.BatchNorm1d`` sees only the rows of one worker, so its statistics, and the results, depend on how the
    graph is partitioned. It becomes a :class:`DistributedBN1D`; ``BatchNorm2d``, ``BatchNorm3d``, ``SyncBatchNorm`` and
    PyG's ``HeteroBatchNorm`` are replaced in the same way. Parameters, running statistics and names in ``state_dict``
    stay the same. Use the returned module::

        model = sar.convert_batchnorm(model)

    :param module: changed in place, unless it is a batch norm itself
    :returns: the module to use in its place
    :raises ValueError: a batch norm is lazy and has not seen a row yet, or is of a class that is not known here
    """
    return _converted(module, "", {})


def _converted(module: nn.Module, path: str, known: Dict[nn.Module, nn.Module]) -> nn.Module:
    """``known``: what became of modules, which may stand in several places."""
    if module not in known:
        known[module] = _replacement(module, path)
        for name, child in module._modules.items() if known[module] is module else ():
            if child is not None:
                setattr(module, name, _converted(child, f"{path}.{name}" if path else name, known))
    return known[module]


def plan(module: nn.Module, path: str) -> Optional[Plan]:
    """What :func:`sar.prepare` makes of a batch norm; None of other modules.

    :raises ValueError: as :func:`convert_batchnorm`
    """
    if isinstance(module, DistributedBN1D):
        return Plan(BATCH_NORM, "as it was made", forward_of_class)
    if getattr(module, "allow_single_element", False):
        return Plan(BATCH_NORM, "a worker may have one row, and all many", _of_the_inner)
    if _made(module, path) is None:
        return None
    return Plan(BATCH_NORM, "its statistics were those of one worker's nodes", _over_all_nodes)


def _of_the_inner(module: Any, x: Tensor) -> Any:
    """The forward of PyG's, which is no exception for a single row."""
    return module.module(x)


def _over_all_nodes(module: Any, *args: Any) -> Any:
    """The forward of a batch norm, in training by the rows of all workers."""
    known = prepared(module)
    assert known is not None
    made: Any = known.kept.get("made")
    if made is None:
        made = known.kept["made"] = _made(module, known.choice.path)
        made._graph = known.graph
    made._parameters, made._buffers, made.training = module._parameters, module._buffers, module.training
    if isinstance(made, DistributedBN1D):
        made.eps, made.momentum = module.eps, module.momentum
    return made.forward(*args)


def _replacement(module: nn.Module, path: str) -> nn.Module:
    made = _made(module, path)
    if made is not None:
        return made
    if getattr(module, "allow_single_element", False):  # of PyG's: a worker may have one row, and all many
        module.allow_single_element = False  # type: ignore[assignment]
    return module


def _made(module: nn.Module, path: str) -> Optional[nn.Module]:
    """A batch norm over the nodes of all workers in the place of one; None for other modules."""
    if isinstance(module, _BatchNorm):
        return _of_torch(module, path)
    if type(module).__name__ == "HeteroBatchNorm" and type(module).__module__.startswith("torch_geometric."):
        return _like(_OfTypes(), module)
    return None


def _of_torch(module: _BatchNorm, path: str) -> nn.Module:
    where = f"{path or 'the module'} is a {type(module).__name__}"
    if isinstance(module, LazyModuleMixin) and cast(Any, module).has_uninitialized_params():
        raise ValueError(f"{where} that has seen no rows yet: run one forward of the model first")
    kinds = [(nn.BatchNorm1d, (3,)), (nn.BatchNorm2d, (4,)), (nn.BatchNorm3d, (5,)), (nn.SyncBatchNorm, (3, 4, 5))]
    dims = next((dims for kind, dims in kinds if isinstance(module, kind)), None)
    if dims is None:
        raise ValueError(f"{where}, which cannot be made global: put a BatchNorm1d, 2d or 3d in its place")
    made = DistributedBN1D(
        module.num_features,
        module.eps,
        module.affine,
        track_running_stats=module.track_running_stats,
        momentum=module.momentum,
    )
    made._dims = dims
    return _like(made, module)


def _like(made: nn.Module, module: Any) -> nn.Module:
    """With the same parameters and buffers, so that an optimizer that holds them, and shared ones, go on working."""
    made._parameters, made._buffers = module._parameters.copy(), module._buffers.copy()
    if isinstance(made, _OfTypes):
        made.of = {name: getattr(module, name) for name in ("num_types", "eps", "momentum", "track_running_stats")}
    made.train(module.training)
    return made


class _OfTypes(nn.Module):
    """PyG's ``HeteroBatchNorm`` over the rows of all workers. As there, statistics are constants in backward."""

    of: Any
    weight: Optional[Tensor]
    bias: Optional[Tensor]
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor, type_vec: Tensor) -> Tensor:
        """``x``: ``[n, f]``; ``type_vec``: the type of each row. Collective in training."""
        tracked = self.of["track_running_stats"]
        if tracked and not self.training:
            mean, var = self.running_mean, self.running_var
        else:
            with torch.no_grad():
                mean, var = self._moments(x, type_vec, tracked)
        out = (x - mean[type_vec]) / var.clamp(self.of["eps"]).sqrt()[type_vec]
        return out if self.weight is None or self.bias is None else out * self.weight[type_vec] + self.bias[type_vec]

    def _moments(self, x: Tensor, types: Tensor, tracked: bool) -> Tuple[Tensor, Tensor]:
        """Mean and variance of each type, ``[types, f]``, towards which the running ones are moved."""
        rows, count = x.double(), self.of["num_types"]
        ones = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        sums = rows.new_zeros(count, ones.shape[1]).index_add_(0, types, ones)
        _over_workers(sums)
        there, total = sums[:, -1] > 0, sums[:, -1:].clamp(min=1)
        mean = sums[:, :-1] / total
        squares = torch.zeros_like(mean).index_add_(0, types, (rows - mean[types]).square())
        _over_workers(squares)
        mean, var = mean.to(x.dtype), (squares / total).to(x.dtype)
        if self.training and tracked:
            weight = self.of["momentum"]
            if weight is None:
                self.num_batches_tracked += 1
                weight = 1.0 / float(self.num_batches_tracked)
            for running, now in ((self.running_mean, mean), (self.running_var, var)):
                running[there] = (1.0 - weight) * running[there] + weight * now[there]
        return mean, var

    def extra_repr(self) -> str:
        return f"num_types={self.of['num_types']}"


def _over_workers(sums: Tensor) -> None:
    if _session.peek() is not None:
        _session.all_reduce(sums, "sum", abi.TRAIN)
