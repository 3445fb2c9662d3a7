"""What :func:`sar.prepare` puts in the place of the forward of one module, and what was decided for it."""

from __future__ import annotations

import contextlib
import copy
import types
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from torch import nn

from sar.autograd.compile import compiling
from sar.autograd.types import class_of

from . import operation

if TYPE_CHECKING:
    from .constant import Constant

FUSED = "fused"
STEPS = "steps"
BATCH_NORM = "batch norm of all nodes"
NODES = "over all nodes"
DROPOUT = "drawn by node"
REFUSED = "refused"
UNTOUCHED = "untouched"


class Choice(NamedTuple):
    """What one module of a model became."""

    path: str
    """Where it is in the model, as in ``model.named_modules()``; empty for the model itself."""
    kind: str
    """The name of its class."""
    became: str
    """``"fused"``: one piece in the engine. ``"steps"``: the layer's own steps, whose sums over edges run in the
    engine. ``"batch norm of all nodes"`` and ``"over all nodes"``: statistics, or a reduction, of the nodes of all
    workers. ``"drawn by node"``: dropout that keeps no mask. ``"refused"``: it raises an error on a graph split over
    workers. ``"untouched"``: it runs as it is."""
    why: str
    sends: Optional[int] = None
    """Bytes that this worker sends for it in a training step; None where it is not known."""
    saves: Optional[int] = None
    """Bytes that it keeps for backward; None where it is not known."""


class Plan(NamedTuple):
    """What a module can become, before all workers have agreed.

    :ivar forward: is given the module and the arguments of its forward; None leaves its forward alone
    :ivar methods: what stands for other methods, by name, and is given the module and their arguments
    """

    became: str
    why: str
    forward: Optional[Callable[..., Any]] = None
    methods: Mapping[str, Callable[..., Any]] = MappingProxyType({})


class PreparedMethod:
    """Stands in a module's ``__dict__`` for a method of its class.

    A deep copy of the module has it as well. What is pickled has the method of its class, so that it can be read where
    this package, or the graph, is not.
    """

    def __init__(self, module: nn.Module, method: str, function: Callable[..., Any]) -> None:
        self.module, self.method, self.function = module, method, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.module, *args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        """Whose arguments it takes, for :func:`inspect.signature`."""
        return types.MethodType(getattr(type(self.module), self.method), self.module)

    def __deepcopy__(self, memo: Dict[int, Any]) -> PreparedMethod:
        return PreparedMethod(copy.deepcopy(self.module, memo), self.method, self.function)

    def __reduce__(self) -> Any:
        return getattr, (self.module, self.method)  # of its class: the module that is read has no attributes yet


class Prepared(PreparedMethod):
    """Stands in a module's ``__dict__`` for its forward.

    :param graph: what the module is called with in compiled models
    :param features: of a row that it gives, none if they are those of its input; None: not known
    """

    def __init__(
        self,
        module: nn.Module,
        choice: Choice,
        forward: Callable[..., Any],
        graph: Any,
        features: Optional[Tuple[int, ...]],
    ) -> None:
        super().__init__(module, "forward", forward)
        self.choice = choice
        self.kept: Dict[str, Any] = {}
        """What the function keeps from one call to the next; a copy of the module begins anew."""
        self.graph, self.features = graph, features
        self.number = operation.number(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if compiling() and self.features is not None and operation.POSSIBLE:
            found = operation.traced(self, args, kwargs)
            if found is not None:
                return found
        return self.function(self.module, *args, **kwargs)

    @property
    def name(self) -> str:
        """For messages."""
        return self.choice.path or self.choice.kind

    def __deepcopy__(self, memo: Dict[int, Any]) -> Prepared:
        return Prepared(copy.deepcopy(self.module, memo), self.choice, self.function, self.graph, self.features)


def prepared(module: Any) -> Optional[Prepared]:
    """What stands for the forward of a module; None where it is not prepared."""
    found = vars(module).get("forward")
    return found if isinstance(found, Prepared) else None


def choice_of(module: Any) -> Optional[Choice]:
    """What all workers agreed on for a module; None where it is not prepared."""
    found = prepared(module)
    return None if found is None else found.choice


def constant_of(module: Any) -> Optional[Constant]:
    """What a prepared module that runs in one piece keeps of rows that it is given in every step; else None."""
    found = prepared(module)
    if found is None or found.choice.became != FUSED:
        return None
    from .constant import Constant  # which few scripts use

    constant: Constant = found.kept.setdefault("constant", Constant())
    return constant


def forward_of_class(module: Any, *args: Any, **kwargs: Any) -> Any:
    """The forward of a module that is prepared, and runs what its class has."""
    return type(module).forward(module, *args, **kwargs)


@contextlib.contextmanager
def instead_of_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Has calls of a module run something else, with its hooks. It has no forward but that of its class."""
    name = "forward" if class_of(module) is type(module) else "_forward"
    module.__dict__[name] = forward
    try:
        yield
    finally:
        del module.__dict__[name]


def plain_forward(module: Any) -> bool:
    """Whether calling a module runs the forward of its class, prepared or not."""
    own = vars(module).get("forward")
    return own is None or isinstance(own, Prepared) or getattr(own, "__func__", None) is type(module).forward
