"""Who may import whom inside the package: downwards only, and nobody in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import ROOT

PACKAGE = ROOT / "python" / "sar"

# From the bottom up. A name stands for a module or a package with all below it that has no place of its own. A module
# imports from layers below its own, and from its own as long as that makes no circle.
LAYERS = [
    ["sar.errors", "sar.config", "sar.function", "sar.units", "sar.extras", "sar._lazy"],
    # the engine, and the session of this process
    ["sar._ext", "sar._engine"],
    ["sar.profiling", "sar.data.partition_book", "sar.data.records"],
    # what needs no graph of ours
    ["sar.integrations"],
    ["sar.data"],
    ["sar.distributed.failure", "sar.distributed.agreement"],
    ["sar.autograd"],
    ["sar.distributed"],
    # graphs, and layers on them
    ["sar.graph"],
    ["sar.sampling", "sar.links"],
    ["sar.transforms"],
    ["sar.autograd.fused"],
    ["sar.nn"],
    ["sar.integrations.dgl.patches"],
    ["sar.graph.layout", "sar.graph.construct"],
    ["sar.results"],
    ["sar.checkpoints"],
    # where scripts begin
    ["sar.profiling.plan", "sar.profiling.stats", "sar.partitioning"],
    ["sar.integrations.pyg"],
    ["sar.pyg", "sar.loading", "sar.preparation"],
    ["sar.report"],
    ["sar.comm"],
    ["sar.inference"],
    ["sar.compat"],
    ["sar._api"],
    ["sar"],
    ["sar.cli", "sar.__main__"],
]
PLACES = {name: number for number, names in enumerate(LAYERS) for name in names}

# what takes long and not every training needs: imported by the functions that use it
LATE = (
    "sar.autograd.fused.constant",
    "sar.autograd.fused.graph_conv",
    "sar.autograd.fused.widths",
    "sar.checkpoints.random_state",
    "sar.data.ingest.make",
    "sar.distributed.process_group",
    "sar.graph.declared",
    "sar.graph.edge_index.index",
    "sar.graph.message_passing.functions",
    "sar.links.negative",
    "sar.links.rows",
    "sar.links.scores",
    "sar.links.structured",
    "sar.profiling.plan.modules",
    "sar.profiling.prometheus",
    "sar.profiling.tensorboard",
    "sar.transforms.adjacency",
    "sar.transforms.columns",
    "sar.transforms.laplacian",
    "sar.transforms.profiles",
    "sar.transforms.walks",
)

# the only users of libraries that not everybody has
LIBRARIES = {
    "duckdb": ["sar.data.ingest", "sar.partitioning.assignment"],
    "yaml": ["sar.data.ingest"],
    "dgl": ["sar.integrations.dgl", "sar.integrations.types", "sar.cli.probe"],
    "pyarrow": ["sar.partitioning.parts", "sar.results", "sar.data.ingest"],
    "torchmetrics": ["sar.inference.metrics"],
    "pymetis": ["sar.partitioning.metis", "sar.sampling.batches"],
    "kaminpar": ["sar.partitioning.kaminpar", "sar.partitioning.apart_process"],
    "mtkahypar": ["sar.partitioning.mtkahypar", "sar.partitioning.apart_process"],
    "matplotlib": ["sar.partitioning.report"],
    "torch_geometric": ["sar.integrations.pyg", "sar.integrations.types"],
    "safetensors": ["sar.checkpoints.tensor_files"],
}


class Import(NamedTuple):
    """One import: by whom, of what, in which line, and whether it waits until a function runs."""

    module: str
    target: str
    line: int
    late: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.target} (line {self.line})"


def sources(package: Path) -> dict[str, str]:
    """The text of each module by its name."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(texts: Mapping[str, str], packages: frozenset[str]) -> list[Import]:
    """What is imported anywhere in the modules, inside functions and for type checkers too. A name that is taken out of
    a package counts as the module of that name, where there is one."""
    found = []
    for module, text in texts.items():
        for node, late in _statements(ast.parse(text)):
            if isinstance(node, ast.Import):
                found += [Import(module, alias.name, node.lineno, late) for alias in node.names]
                continue
            base = node.module or ""
            if node.level:
                above = module.split(".")[: None if module in packages else -1]
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.append(Import(module, inner if inner in texts else base, node.lineno, late))
    return found


def _statements(tree: ast.AST, late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, late
        else:
            yield from _statements(node, late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def place(module: str, places: Mapping[str, int]) -> int | None:
    """The number of a module's layer; None where neither it nor a package above it has one. The whole package's own
    place is that of its ``__init__`` alone."""
    if module in places:
        return places[module]
    parts = module.split(".")
    return next((places[n] for k in range(len(parts) - 1, 1, -1) if (n := ".".join(parts[:k])) in places), None)


def upward(found: list[Import], texts: Mapping[str, str], places: Mapping[str, int]) -> list[Import]:
    """Imports of what lies above."""
    inside = [i for i in found if i.target in texts]
    return [i for i in inside if (place(i.target, places) or 0) > (place(i.module, places) or 0)]


def circles(found: list[Import], texts: Mapping[str, str]) -> list[list[Import]]:
    """For every circle of modules, one way around it."""
    after: dict[str, dict[str, Import]] = {module: {} for module in texts}
    for one in found:
        if one.target in texts:
            after[one.module].setdefault(one.target, one)
    result, done = [], set()
    for start in sorted(texts):
        if start in done:
            continue
        way: dict[str, Import] = {}  # how each module was first reached from the start
        open_ = [start]
        while open_ and start not in way:
            at = open_.pop(0)
            for target, one in after[at].items():
                if target not in way:
                    way[target] = one
                    open_.append(target)
        if start in way:
            around = [way[start]]
            while around[0].module != start:
                around.insert(0, way[around[0].module])
            result.append(around)
            done.update(one.module for one in around)
    return result


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return sources(PACKAGE)


@pytest.fixture(scope="module")
def found(texts: dict[str, str]) -> list[Import]:
    packages = [path.parent.relative_to(PACKAGE.parent).parts for path in PACKAGE.rglob("__init__.py")]
    return imports(texts, frozenset(map(".".join, packages)))


def test_every_module_has_a_layer(texts: dict[str, str]) -> None:
    homeless = sorted(module for module in texts if place(module, PLACES) is None)
    assert not homeless, f"give these a layer in {Path(__file__).name}: {homeless}"


def test_layers_name_what_there_is(texts: dict[str, str]) -> None:
    made_by_the_build = {"sar._ext"}
    assert sorted(set(PLACES) - set(texts) - made_by_the_build) == []
    assert len(PLACES) == sum(map(len, LAYERS)), "a module stands in two layers"


def test_no_circles(found: list[Import], texts: dict[str, str]) -> None:
    told = ["; ".join(map(str, around)) for around in circles(found, texts)]
    assert not told, "modules import each other in a circle:\n" + "\n".join(told)


def test_nothing_imports_upwards(found: list[Import], texts: dict[str, str]) -> None:
    told = list(map(str, upward(found, texts, PLACES)))
    assert not told, "imports of what lies above:\n" + "\n".join(told)


def test_imports_wait_for_a_function_only_where_it_pays(found: list[Import], texts: dict[str, str]) -> None:
    """For DGL and PyG, which take long to import and may be missing, in commands, which are to start quickly, and for
    what not every training needs: the modules of ingest, those of prepared models, process groups,
    torch.distributed.checkpoint, two ways to write metrics."""
    told = [
        str(one)
        for one in found
        if one.late
        and one.target in texts
        and not one.target.startswith(("sar.integrations.dgl.", "sar.integrations.pyg."))
        and not one.module.startswith("sar.cli")
        and one.target not in LATE
    ]
    assert not told, "import these at the top of the file:\n" + "\n".join(told)


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_imported_in_their_places(found: list[Import], library: str) -> None:
    told = [
        str(one)
        for one in found
        if one.target.split(".")[0] == library
        and not any(one.module == home or one.module.startswith(home + ".") for home in LIBRARIES[library])
    ]
    assert not told


# ---- the reading itself ------------------------------------------------------


def test_the_package_was_read(found: list[Import], texts: dict[str, str]) -> None:
    assert len(texts) > 100 and sum(one.target in texts for one in found) > 300
    known = {(one.module, one.target) for one in found}
    assert {("sar._engine.abi", "sar._engine.library"), ("sar._api", "sar.nn")} <= known
    assert ("sar.graph.block", "sar.integrations.dgl.graphs") in known


@pytest.mark.parametrize(
    "statement, target",
    [
        ("import sar.b", "sar.b"),
        ("from sar.b import x", "sar.b"),
        ("from .. import b", "sar.b"),
        ("from ..b import x", "sar.b"),
        ("from . import c", "sar.a.c"),
        ("from .c import x", "sar.a.c"),
        ("def f():\n    from .. import b", "sar.b"),
        ("class A:\n    def f(self):\n        if self:\n            import sar.b", "sar.b"),
        ("try:\n    from ..b import x\nexcept ImportError:\n    pass", "sar.b"),
        ("if TYPE_CHECKING:\n    from ..b import x\nelse:\n    x = None", "sar.b"),
        ("if typing.TYPE_CHECKING:\n    from ..b import x", "sar.b"),
    ],
)
def test_imports_are_seen(statement: str, target: str) -> None:
    made = {"sar": "", "sar.a": "", "sar.a.c": "", "sar.a.d": statement, "sar.b": ""}
    seen = imports(made, frozenset(["sar", "sar.a"]))
    assert [one.target for one in seen] == [target]
    assert all(one.late == ("def " in statement) for one in seen)


def test_circles_are_seen() -> None:
    made = {
        "sar": "from . import a, b",
        "sar.a": "def f():\n    from .b import x",
        "sar.b": "from .c import x",
        "sar.c": "from .a import f\nfrom .d import y",
        "sar.d": "",
    }
    around = circles(imports(made, frozenset(["sar"])), made)
    assert [[one.module for one in way] for way in around] == [["sar.a", "sar.b", "sar.c"]]
    made["sar.c"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import f"
    assert len(circles(imports(made, frozenset(["sar"])), made)) == 1
    made["sar.c"] = "from .d import y"
    assert circles(imports(made, frozenset(["sar"])), made) == []
    # the package itself, which imports all of them, is the most frequent way into a circle
    made["sar.d"] = "from . import __version__"
    made["sar"] += ", d"
    assert circles(imports(made, frozenset(["sar"])), made)


def test_imports_of_what_lies_above_are_seen() -> None:
    made = {"sar": "", "sar.low": "from .high import thing", "sar.high": "", "sar.high.thing": "from .. import low"}
    places = {"sar.low": 0, "sar.high": 1, "sar": 2}
    seen = upward(imports(made, frozenset(["sar", "sar.high"])), made, places)
    assert [(one.module, one.target) for one in seen] == [("sar.low", "sar.high.thing")]
    assert place("sar.other", places) is None and place("sar.high.thing", places) == 1


def test_what_frees_handles_of_the_engine_shares_them() -> None:
    """An object that frees a handle when it goes would leave its copies with one that is gone: only ``Native``, whose
    copies are the object itself, has finalizers; the tensors over mapped files, which hold the map; and those that hold
    the number of what a compiled layer keeps."""
    users = [name for name, text in sources(PACKAGE).items() if "weakref.finalize(" in text]
    assert sorted(users) == ["sar._engine.mappings", "sar._engine.native", "sar.autograd.fused.operation"]
