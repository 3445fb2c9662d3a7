"""The number of a worker's edges, which is not that of the graph."""

from __future__ import annotations

from typing import Any, Callable

from sar._engine import session as _session
from sar._engine.log import warn_user


def warn_of_count(what: str) -> None:
    """Warns that a number is one worker's, where there are several."""
    if _session.current().world > 1:
        warn_user(
            f"{what} is the number of this worker's edges, not of those of the whole graph: edge_index.numel() // 2 "
            "counts the edges of all workers"
        )


class EdgeCount(int):
    """What ``size(0)`` of a tensor of edges gives. It says so where it is calculated with; as a size of another tensor
    it is what it should be."""

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _warning(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operation(self: EdgeCount, *others: Any) -> Any:
        warn_of_count(f"size(0) of a tensor of edges, used in {name.strip('_')},")
        return plain(self, *others)

    operation.__name__ = name
    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod"):
    for _side in ("", "r"):
        setattr(EdgeCount, f"__{_side}{_name}__", _warning(f"__{_side}{_name}__"))
for _name in ("__neg__", "__float__"):
    setattr(EdgeCount, _name, _warning(_name))
