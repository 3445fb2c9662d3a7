"""Decides once, for all workers, what each module of a model becomes on a graph that is split over them."""

from __future__ import annotations

import itertools
import textwrap
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, TypeVar, Union

from torch import nn
from torch.nn.parameter import UninitializedParameter

from .autograd.fused import operation
from .autograd.fused.eligibility import disturbed, gat_unfit, sage_unfit
from .autograd.fused.prepared import (
    BATCH_NORM,
    DROPOUT,
    FUSED,
    NODES,
    STEPS,
    UNTOUCHED,
    Choice,
    Plan,
    Prepared,
    PreparedMethod,
    forward_of_class,
    plain_forward,
)
from .data.partition_book import CanonicalEtype
from .distributed.agreement import all_or_none, said_by_all
from .errors import ScheduleError
from .graph.manager import GraphShardManager
from .nn import GATConv, GraphConv, SAGEConv, convert, dropout
from .units import size

if TYPE_CHECKING:
    from .graph.edge_index.index import SplitEdgeIndex
    from .integrations.pyg.data import SplitData, SplitHeteroData
    from .profiling.plan.modules import Sizes

Model = TypeVar("Model", bound=nn.Module)
_KEY = "_sar_prepared"
"""Where a model keeps its description."""
_WHY = 34
"""Columns of a table that reasons have."""


class Description(Tuple[Choice, ...]):
    """What the modules of a model became: a :class:`Choice` for each. Printed, it is a table of those that are not
    as they were."""

    __slots__ = ()

    def __str__(self) -> str:
        rows: List[Tuple[str, ...]] = [("module", "class", "became", "why", "sends", "saves")]
        others: Dict[str, None] = {}
        for one in self:
            if one.became == UNTOUCHED:
                others[one.kind] = None
            else:
                numbers = ("" if n is None else size(n) for n in (one.sends, one.saves))
                first, *more = textwrap.wrap(one.why, _WHY)
                rows.append((one.path or "the model", one.kind, one.became, first, *numbers))
                rows.extend(("", "", "", line, "", "") for line in more)
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        rest = f"untouched: {', '.join(others)}"
        return "\n".join([*lines, *textwrap.wrap(rest, 110, subsequent_indent="  ")] if others else lines)

    __repr__ = __str__

    def __deepcopy__(self, memo: Any) -> Description:
        return self

    def __reduce__(self) -> Any:
        return tuple, ()  # of a model that is pickled: it has the forwards of its classes


def prepare(model: Model, graph_or_data: Union[GraphShardManager, SplitEdgeIndex, SplitData, SplitHeteroData]) -> Model:
    """Decides what each module of a model becomes on a graph split over workers, and has it run so. Collective.

    ::

        model = sar.prepare(model, graph)
        print(sar.describe(model))

    Layers of DGL, PyG and ``sar.nn`` run in one piece where nothing looks at their steps, and all workers do the same.
    Batch norms of torch and PyG take the statistics of all workers, as after :func:`sar.convert_batchnorm`; their class
    stays. In graph transformers of PyG each node attends to those of all workers. Normalizations and aggregation
    modules of PyG ask in their first forward whether they are given own nodes,
    and not again. Dropout modules draw by seeds of rank 0 and by the ids of nodes, and keep no mask. Parameters,
    buffers and names in ``state_dict`` stay as they are.

    What replaces a forward stands in the module itself, and :func:`restore` takes it away. A deep copy is prepared as
    well. A model that is pickled, and read again, is not. A model that is not prepared runs too, but for batch norm
    with the same results: SAR then decides in each forward.

    :param model: changed in place. One that is prepared is prepared anew
    :param graph_or_data: what it will be called with
    :returns: the model
    :raises ScheduleError: on every worker, where models differ between workers; it names the module
    :raises ValueError: a batch norm is lazy and has not seen a row yet, or is of a class that is not known here
    :raises TypeError: a graph that is not split over workers
    """
    from .autograd.fused import widths

    relations = _relations(graph_or_data)
    called_with = getattr(graph_or_data, "edge_index", graph_or_data)
    operation.declare()
    restore(model)
    modules = dict(model.named_modules())
    plans = all_or_none("sar.prepare", lambda: _plans(modules))
    agreed = _agreed(modules, plans)
    known = _costs(modules, agreed, relations)
    choices = Description(Choice(path, type(modules[path]).__name__, *agreed[path], *known[path]) for path in modules)
    for choice in choices:
        module, forward = modules[choice.path], plans[choice.path].forward
        if forward is not None:
            module.__dict__["forward"] = Prepared(module, choice, forward, called_with, widths.features(module))
        for name, function in plans[choice.path].methods.items():
            module.__dict__[name] = PreparedMethod(module, name, function)
    model.__dict__[_KEY] = choices
    return model


def describe(model: nn.Module) -> Description:
    """What :func:`prepare` made of each module, why, and what that sends and keeps.

    Each item has ``path``, ``kind``, ``became``, ``why``, ``sends`` and ``saves``. Bytes are of this worker in one
    training step, as :func:`sar.estimate_memory` counts them, each module by itself: what two share is in both.

    :raises ValueError: the model is not prepared
    """
    found: Optional[Description] = vars(model).get(_KEY)
    if not found:
        raise ValueError("the model is not prepared: call sar.prepare(model, graph) first")
    return found


def restore(model: Model) -> Model:
    """Undoes :func:`prepare`, in a part of a model too. Local, but workers whose models differ cannot go on together.

    :returns: the model
    """
    for module in model.modules():
        own = vars(module)
        own.pop(_KEY, None)
        if "forward" in own and plain_forward(module):
            del own["forward"]
        for name in [name for name, value in own.items() if isinstance(value, PreparedMethod)]:
            del own[name]
    return model


# ---- what there is ----------------------------------------------------------------


def _relations(given: Any) -> Dict[CanonicalEtype, Sizes]:
    """The sizes of each relation of a graph or data object."""
    from .graph.edge_index.index import SplitEdgeIndex
    from .profiling.plan.modules import Sizes

    if isinstance(given, SplitEdgeIndex):
        found = [given]
    else:
        found = [store.get("edge_index") for store in getattr(given, "edge_stores", ())]
    if isinstance(given, GraphShardManager):
        relations = given._relations
    elif found and all(isinstance(index, SplitEdgeIndex) for index in found):
        relations = [index.edges.relation for index in found]
    else:
        raise TypeError(
            f"prepare: a {type(given).__name__} that is split over workers is wanted: what sar.load gives, or an edge "
            "index of it"
        )
    return {r.canonical: Sizes(r.num_dst, sum(pair["send_rows"] for pair in r.boundary())) for r in relations}


def _plans(modules: Dict[str, nn.Module]) -> Dict[str, Plan]:
    """What each module can become on this worker."""
    kinds = {kind for module in modules.values() for kind in type(module).__mro__}
    libraries = {kind.__module__.partition(".")[0] for kind in kinds}
    dgl: Any = None
    pyg: Any = None
    if "dgl" in libraries:
        from .integrations.dgl.patches import choices as dgl
    if "torch_geometric" in libraries:
        from .integrations.pyg import choices as pyg
    passing: List[str] = []
    plans: Dict[str, Plan] = {}
    for path, module in modules.items():
        plan = None
        if not plain_forward(module):
            plan = Plan(UNTOUCHED, "its forward is replaced in this object")
        plan = plan or convert.plan(module, path) or dropout.plan(module, path) or _of_sar(module)
        if plan is None and dgl is not None:
            plan = dgl.plan(module)
        if plan is None and pyg is not None:
            plan = pyg.plan(module, any(path.startswith(f"{layer}.") for layer in passing))
        plans[path] = plan or Plan(UNTOUCHED, "it runs as it is")
        if path and hasattr(module, "propagate"):
            passing.append(path)
    return plans


def _of_sar(module: nn.Module) -> Optional[Plan]:
    """What a layer of ``sar.nn`` becomes."""
    home = type(module).__module__
    if type(module) is SAGEConv:
        why = disturbed() or sage_unfit(module, module.aggregator_type)
    elif type(module) is GATConv:
        why = disturbed() or gat_unfit(module)
    elif type(module) is GraphConv:
        why = disturbed() or ("it has no weight" if module.weight is None else None)
    else:
        layer = home.startswith("sar.nn.") and type(module).__name__.endswith("Conv")
        return Plan(STEPS, "the layer's own, whose sums over edges run in the engine") if layer else None
    blocks = getattr(module, "memory_efficient", False)
    fits = "by blocks of columns" if blocks else "nothing looks at its steps"
    return Plan(FUSED if why is None else STEPS, why or fits, forward_of_class)


# ---- agreement ------------------------------------------------------------------------


def _agreed(modules: Dict[str, nn.Module], plans: Dict[str, Plan]) -> Dict[str, Tuple[str, str]]:
    """What each module becomes on all workers, and why. Collective.

    :raises ScheduleError: models differ
    """
    mine = [
        [path, f"{type(m).__module__}.{type(m).__qualname__}", _shapes(m), plans[path].became, plans[path].why]
        for path, m in modules.items()
    ]
    said = said_by_all(mine)
    agreed = {path: (became, why) for path, _, _, became, why in said[0]}
    for rank, other in enumerate(said):
        for first, theirs in itertools.zip_longest(said[0], other):
            if first is None or theirs is None or first[:3] != theirs[:3]:
                raise ScheduleError(
                    f"sar.prepare: models differ: {_shown(0, first)}, {_shown(rank, theirs)}. Every worker prepares "
                    "the same model",
                    rank,
                )
            path, _, _, became, why = theirs
            if became != first[3] and {became, first[3]} != {FUSED, STEPS}:
                raise ScheduleError(
                    f"sar.prepare: {path or 'the model'} is {became!r} on rank {rank} ({why}) and {first[3]!r} on rank "
                    f"0 ({first[4]})",
                    rank,
                )
            if became == STEPS and agreed[path][0] == FUSED:  # what all workers can run
                agreed[path] = STEPS, f"rank {rank}: {why}"
    return agreed


def _shapes(module: nn.Module) -> List[Any]:
    return [[name, str(p.dtype), list(p.shape)] for name, p in module.named_parameters(recurse=False) if _is_made(p)]


def _is_made(parameter: nn.Parameter) -> bool:
    return not isinstance(parameter, UninitializedParameter)


def _shown(rank: int, module: Any) -> str:
    if module is None:
        return f"rank {rank} has no further module"
    path, kind, shapes, *_ = module
    parameters = ", ".join(f"{name} {shape}" for name, _, shape in shapes)
    return f"rank {rank} has {path or 'the model'}: {kind}({parameters})"


# ---- bytes ------------------------------------------------------------------------------


def _costs(
    modules: Dict[str, nn.Module], agreed: Dict[str, Tuple[str, str]], relations: Dict[CanonicalEtype, Sizes]
) -> Dict[str, Tuple[Optional[int], Optional[int]]]:
    """What each module sends and keeps. The first layer reads features, which need no gradient."""
    from .profiling.plan.modules import cost

    known: Dict[str, Tuple[Optional[int], Optional[int]]] = {}
    first = True
    for path, module in modules.items():
        became = agreed[path][0]
        sizes = _sizes(path, relations) if became in (FUSED, STEPS, BATCH_NORM, NODES) else None
        found = None if sizes is None else cost(module, sizes, became == FUSED, grad=not first)
        known[path] = found or (None, 0 if became == DROPOUT else None)
        first = first and (found is None or became == BATCH_NORM)
    return known


def _sizes(path: str, relations: Dict[CanonicalEtype, Sizes]) -> Optional[Sizes]:
    """The sizes of the relation that a module is for: of several, the one whose name is in its path."""
    if len(relations) == 1:
        return next(iter(relations.values()))
    parts = path.split(".")
    named = [sizes for triple, sizes in relations.items() if triple[1] in parts or f"<{'___'.join(triple)}>" in parts]
    return named[0] if len(named) == 1 else None
