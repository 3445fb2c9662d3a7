"""Every public name: that it is there, what it takes, and that it says so."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import sar
from tests.support import warm
from tests.support.processes import wait_until

# module: name: its parameters as users give them ("" for no call; None where any will do)
FUNCTIONS: dict[str, dict[str, str | None]] = {
    "sar": {
        "initialize_comms": "_rank=None, _world_size=None, master_ip_address=None, backend='sar', _comm_device=None, "
        "master_port_number=None, *, job_token=None",
        "environment": "",
        "nfs_ip_init": "_rank, ip_file",
        "rank": "",
        "world_size": "",
        "comm_device": "",
        "sync_params": "model",
        "gather_grads": "model",
        "load": "path, *, pyg=False",
        "prepare": "model, graph_or_data",
        "describe": "model",
        "restore": "model",
        "load_dgl_partition_data": "partition_json_file, own_partition_idx, device=None",
        "suffix_key_lookup": "feature_dict, key, expand_to_all=False, type_list=None",
        "construct_full_graph": "partition_data",
        "construct_mfgs": "partition_data, seed_nodes, n_layers, keep_seed_nodes=True",
        "convert_dist_graph": "dist_graph",
        "message_has_parameters": None,
        "edge_softmax": "graph, logits, eids='__ALL__', norm_by='dst'",
        "patch_dgl": "",
        "replaced": "",
        "patched_edge_softmax": "graph, logits, eids='__ALL__', norm_by='dst'",
        "logging_setup": "log_level, _rank=-1, _world_size=-1, log_file=None",
        "convert_batchnorm": None,
        "DistributedBN1D": "n_feats, eps=1e-05, affine=True, distributed=None, *, track_running_stats=False, "
        "momentum=0.1",
        "DistNeighborSampler": "fanouts, prob=None, replace=False, copy_edata=True, input_node_features=None, "
        "output_node_features=None, output_device=None",
        "DataLoader": "full_graph_manager, seed_nodes, graph_sampler, batch_size=1, drop_last=False, shuffle=False, "
        "precompute_optimized_batches=True, optimized_batches_cache=None, num_workers=0",
        "RelGraphConv": "in_feat, out_feat, num_rels, regularizer=None, num_bases=None, bias=True, activation=None, "
        "self_loop=True, dropout=0.0, layer_norm=False",
        "memory_stats": "",
        "stats": "",
        "metrics": "",
        "log_epoch": None,
        "set_num_threads": "n",
        "ingest": "source, out, *, symmetrize=False, deduplicate=False, self_loops=False, skip_bad_rows=False, "
        "memory='4GiB', scratch=None, threads=None, name=None",
        "set_allocator": "policy",
        "save_checkpoint": "directory, model, optimizer=None, *, step, extra=None, graph=None, per_node=None, keep=2",
        "load_checkpoint": "directory, model, optimizer=None, *, graph=None, step=None",
        "Checkpointer": "directory, model, optimizer=None, *, graph=None, every=None, minutes=None, keep=2, "
        "per_node=None, background=True",
        "write_rows": "path, tensor, graph, ntype=None, *, ids=None, columns=None",
    },
    "sar.comm": {
        "all_reduce": "red_tensor, op='sum', move_to_comm_device=False",
        "all_to_all": "recv_tensors, send_tensors, move_to_comm_device=False",
        "all_to_all_rounds": "recv_tensors, send_tensors",
        "exchange_tensors": "tensors, recv_sizes=None",
        "exchange_single_tensor": "recv_idx, send_idx, recv_tensor, send_tensor",
        "broadcast": "tensor, root=0",
        "barrier": "",
        "is_initialized": "",
        "backend": "",
        "master_ip": "",
        "master_port": "",
        "get_socket": "",
        "get_socket_name": "",
        "get_ip_address": "ip_file, timeout=None",
        "dump_ip_address": "ip_file",
        "nfs_ip_init": "_rank, ip_file",
        "initialize_comms": None,
        "rank": "",
        "world_size": "",
        "comm_device": "",
        "sync_params": "model",
        "gather_grads": "model",
        "CommThread": "",
        "shutdown": "",
    },
    "sar.core": {"message_has_parameters": None},
    "sar.core.sampling": {"minibatch_partition": None, "NodeCollator": None, "DataLoader": None},
    "sar.construct_shard_manager": {"construct_full_graph": None, "construct_mfgs": None, "convert_dist_graph": None},
    "sar.data_loading": {
        "create_partition_data": None,
        "load_dgl_partition_data": None,
        "load_dgl_partition_data_from_graph": None,
        "suffix_key_lookup": None,
    },
    "sar.transforms": {
        "random_walk_pe": "edges, walk_length, edge_weight=None, *, memory=268435456",
        "laplacian_pe": "edges, k, edge_weight=None, *, self_loops=False, random_signs=False, "
        "return_eigenvalues=False, tolerance=1e-08, max_products=10000",
        "laplacian_lambda_max": "edges, edge_weight=None, normalization='sym', *, tolerance=1e-08, max_products=10000",
        "pagerank": "edges, alpha=0.85, personalization=None, edge_weight=None, *, tolerance=1e-10, "
        "max_iterations=1000",
        "degree_profile": "edges",
        "homophily": "edges, y, method='edge'",
    },
    "sar.pyg": {"load": "path", "edge_index": "graph", "restore": ""},
    "sar.distributed_bn": {"DistributedBN1D": None, "mean_op": None, "var_op": None},
    "sar.edge_softmax": {"edge_softmax": None},
    "sar.patch_dgl": {"patch_dgl": "", "patched_edge_softmax": None, "RelGraphConv": None, "unpatch_dgl": ""},
    "sar.logging_setup": {"logging_setup": None},
}

CLASSES = {
    "sar": ["GraphShardManager", "HeteroGraphShardManager", "DistributedBlock", "Config"],
    "sar.core": [
        "GraphShardManager",
        "HeteroGraphShardManager",
        "DistributedBlock",
        "DistNeighborSampler",
        "DataLoader",
    ],
    "sar.config": ["Config"],
    "sar.distributed_bn": ["MeanOp", "VarOp"],
}

FIELDS = {
    "ShardEdgesAndFeatures": "edges edge_features",
    "GraphShardManagerData": "all_shard_edges src_node_ranges tgt_node_range tgt_seed_nodes local_src_seed_nodes",
    "PartitionData": "all_shard_edges node_ranges node_features node_type_names edge_type_names partition_book",
    "AggregationData": "graph_shard_manager message_func reduce_func etype all_input_names n_params grad_enabled "
    "remote_data",
    "ShardInfo": "shard_idx src_node_range tgt_node_range edge_range",
    "SocketInfo": "name ip_addr",
}

MANAGER = """
    __getitem__ srcdata dstdata ndata edata srcnodes dstnodes nodes local_scope update_all apply_edges multi_update_all
    in_degrees out_degrees ntypes srctypes dsttypes etypes canonical_etypes ntypes_global etypes_global
    canonical_etypes_global num_nodes num_edges number_of_nodes number_of_edges num_src_nodes num_dst_nodes
    number_of_src_nodes number_of_dst_nodes num_nodes_global num_edges_global num_src_nodes_global num_dst_nodes_global
    number_of_nodes_global number_of_edges_global number_of_src_nodes_global number_of_dst_nodes_global
    is_block is_homogeneous device to idtype to_canonical_etype get_etype_id get_ntype_id local_var batch_num_nodes
    edges input_nodes seeds _partition_book partition_book node_ranges tgt_node_range graph_shards
    graph_shard_managers indices_required_from_me get_full_partition_graph sampling_graph
    clone remove_edges send_and_recv filter_nodes filter_edges add_self_loop remove_self_loop formats create_formats_
    total num_classes
"""

# what scripts for the Python package set, whether it has an effect or not
OLD_SETTINGS = ["disable_sr", "max_collective_size", "pipeline_depth"]
OLD_SETTINGS += ["current_layer_index", "total_layers", "train_iter", "total_train_iter"]

EVERY = [(module, name) for module, names in FUNCTIONS.items() for name in names]


def get(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("module", "name"), EVERY, ids=lambda v: v)
def test_function(module: str, name: str) -> None:
    function = get(module, name)
    assert callable(function), f"{module}.{name} is {function!r}"
    wanted = FUNCTIONS[module][name]
    if wanted is not None:
        found = str(inspect.signature(function).replace(return_annotation=inspect.Signature.empty))
        bare = ", ".join(p if "*" in p else _bare(parameter) for p, parameter in _parameters(function))
        assert bare == wanted or bare.startswith(f"{wanted}, "), found  # more may follow


def _parameters(function: Any) -> list[tuple[str, Any]]:
    result: list[tuple[str, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p == "*" for p, _ in result):
            result.append(("*", parameter))
        result.append((parameter.name, parameter))
    return result


def _bare(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


@pytest.mark.parametrize(("module", "name"), EVERY, ids=lambda v: v)
def test_docstring(module: str, name: str) -> None:
    """What a function takes is named in its docstring, and what it raises where it takes anything."""
    function = get(module, name)
    if module == "sar.distributed_bn" and name.endswith("_op"):
        function = function.__self__  # what apply belongs to
    text = inspect.getdoc(function) or ""
    if inspect.isclass(function):
        text += "\n" + "\n".join(inspect.getdoc(m) or "" for _, m in inspect.getmembers(function, inspect.isroutine))
    assert text, f"{module}.{name} says nothing"
    wanted = [p for p, _ in _parameters(function) if p != "*" and p not in ("args", "kwargs")]
    if FUNCTIONS[module][name]:
        missing = [p for p in wanted if p not in text]
        assert not missing, f"{module}.{name} does not explain {missing}"


@pytest.mark.parametrize("module", CLASSES)
def test_class(module: str) -> None:
    for name in CLASSES[module]:
        found = get(module, name)
        assert inspect.isclass(found) and inspect.getdoc(found), f"{module}.{name}"


@pytest.mark.parametrize("name", FIELDS)
def test_record(name: str) -> None:
    record = get("sar.common_tuples", name)
    assert list(record._fields) == FIELDS[name].split()
    assert inspect.getdoc(record)
    made = record(*range(len(record._fields)))
    assert [getattr(made, field) for field in record._fields][-1] == len(record._fields) - 1


def test_partition_data_is_a_named_tuple() -> None:
    data = sar.common_tuples.PartitionData([], [(0, 2)], {"_N/x": torch.ones(2)}, ["_N"], [("_N", "_E", "_N")], None)
    shards, ranges, features, *_ = data
    assert (shards, ranges, list(features)) == ([], [(0, 2)], ["_N/x"])
    assert data[1] is data.node_ranges and data[-1] is None and data[1:3] == (data[1], data[2]) and len(data) == 6
    assert list(data._asdict()) == list(data._fields)
    other = data._replace(node_features={})
    assert other.node_features == {} and other.node_ranges == data.node_ranges and "_N/x" in data.node_features
    with pytest.raises(ValueError, match="no field 'nodes'; there are: all_shard_edges"):
        data._replace(nodes=3)


def test_tensor_places() -> None:
    assert [place.name for place in sar.common_tuples.TensorPlace] == ["SRC", "DST", "EDGE", "PARAM"]


@pytest.mark.parametrize("kind", ["GraphShardManager", "HeteroGraphShardManager"])
def test_manager(kind: str) -> None:
    manager = getattr(sar, kind)
    for name in MANAGER.split():
        member = inspect.getattr_static(manager, name, None)
        assert member is not None, f"{kind}.{name} is missing"
        assert name.startswith("_") or name == "is_block" or inspect.getdoc(getattr(manager, name)), f"{kind}.{name}"
    parameters = {
        "update_all": ["message_func", "reduce_func", "apply_node_func", "etype"],
        "apply_edges": ["func", "edges", "etype"],
        "multi_update_all": ["etype_dict", "cross_reducer", "apply_node_func"],
        "get_full_partition_graph": ["delete_shard_data"],
    }
    for name, wanted in parameters.items():
        assert list(inspect.signature(getattr(manager, name)).parameters)[1:] == wanted, name


def test_names_of_modules_are_the_functions() -> None:
    """sar.edge_softmax and the like are functions, and modules of the same name can be imported from, in any order."""
    orders = [
        "import sar",
        "import sar.edge_softmax, sar.patch_dgl, sar.logging_setup",
        "from sar.logging_setup import logging_setup, logger",
        "from sar.patch_dgl import patch_dgl, patched_edge_softmax, RelGraphConv",
        "from sar.edge_softmax import edge_softmax",
        "import sar.core; import sar.core.sampling; import sar.nn; import sar.function",
        "import importlib; importlib.import_module('sar.edge_softmax').edge_softmax",
        "import sar; sar.patch_dgl(); sar.patch_dgl()",
    ]
    check = """
import types, sar
for name in ("edge_softmax", "patch_dgl", "logging_setup"):
    assert isinstance(getattr(sar, name), types.FunctionType), name
import sys
for name in ("edge_softmax", "patch_dgl", "logging_setup"):
    assert isinstance(sys.modules["sar." + name], types.ModuleType)
    assert getattr(sys.modules["sar." + name], name) is getattr(sar, name)
assert sar.patched_edge_softmax is sar.edge_softmax
"""
    program = f"""
import sys
for code in {[*orders, chr(10).join(orders), chr(10).join(reversed(orders))]!r}:
    for name in [n for n in sys.modules if n.split(".")[0] == "sar"]:
        del sys.modules[name]
    exec(code + {check!r}, {{}})
"""
    done = warm.run(["-c", program])
    assert done.returncode == 0, done.stderr


def test_all_lists_what_is_there() -> None:
    for module in (sar, sar.comm, sar.common_tuples, sar.function, sar.nn, sar.core, sar.distributed_bn):
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert not missing, f"{module.__name__}.__all__ names {missing}"
        assert len(set(module.__all__)) == len(module.__all__)
    wanted = [n for n in (*FUNCTIONS["sar"], *CLASSES["sar"]) if n not in sar.__all__]
    assert not wanted, f"sar.__all__ lacks {wanted}"


def test_functions_are_those_of_dgl() -> None:
    """Names and fields of built-in messages and reducers."""
    fn = pytest.importorskip("dgl").function
    messages = [name for name in dir(fn) if re.fullmatch(r"copy_[ue]|[uve]_[a-z]+_[uve]", name)]
    assert len(messages) == 32
    for name in messages:
        given = ("a", "out") if name.startswith("copy_") else ("a", "b", "out")
        ours, theirs = getattr(sar.function, name)(*given), getattr(fn, name)(*given)
        assert ours.name == theirs.name == name
        for field, value in vars(theirs).items():
            assert getattr(ours, field) == value, f"{name}.{field}"
        assert inspect.getdoc(getattr(sar.function, name))
    for name in ("sum", "mean", "max", "min"):
        ours, theirs = getattr(sar.function, name)("m", "out"), getattr(fn, name)("m", "out")
        assert (ours.name, ours.msg_field, ours.out_field) == (theirs.name, theirs.msg_field, theirs.out_field)
    assert set(sar.function.__all__) >= {*messages, "sum", "mean", "max", "min"}


def test_a_thread_for_tasks() -> None:
    import queue

    thread = sar.comm.CommThread()
    with pytest.raises(queue.Empty):
        thread.get_result(block=False)
    thread.submit_task("one", lambda: torch.ones(3))
    thread.submit_task("nothing", lambda: None)
    thread.submit_task("fails", lambda: torch.ones(3) @ torch.ones(4))
    thread.submit_task("two", lambda: 2)
    assert thread.get_result().tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="size"):
        thread.get_result()
    assert thread.get_result() == 2
    assert isinstance(sar.comm.comm_thread, sar.comm.CommThread)


def test_a_thread_between_tasks_keeps_nothing() -> None:
    thread = sar.comm.CommThread()
    model = torch.nn.Linear(2, 2)
    left = weakref.ref(model)
    thread.submit_task("forward", lambda model=model: model(torch.ones(1, 2)))
    assert thread.get_result().shape == (1, 2)
    del model
    wait_until(lambda: left() is None, 10.0)


def test_the_log(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    import logging

    try:
        sar.logging_setup("INFO", 1, 4, str(tmp_path / "log"))
        sar.logger.info("to a file")
        sar.logging_setup(logging.WARNING, _rank=2, _world_size=4)
        sar.logger.info("to nobody")
        sar.logger.warning("to the terminal")
        assert "1/4 INFO sar: to a file" in (tmp_path / "log").read_text()
        shown = capsys.readouterr().err
        assert "2/4 WARNING sar: to the terminal" in shown and "nobody" not in shown
        with pytest.raises(ValueError, match="log level 'LOUD' is unknown"):
            sar.logging_setup("LOUD")
    finally:
        sar.logging_setup(logging.WARNING)


def test_a_feature_that_is_not_there() -> None:
    features = {"_N/features": torch.ones(3, 2), "_N/train_mask": torch.ones(3), "_TYPE": torch.zeros(3)}
    there = "no feature ends with 'test_mask'; there are: _N/features, _N/train_mask; did you mean '_N/train_mask'.$"
    with pytest.warns(UserWarning, match=there) as caught:
        found = sar.suffix_key_lookup(features, "test_mask")
    assert found.dtype == torch.int64 and found.shape == (0,)
    assert caught[0].filename == __file__, "the warning names the line of the script"
    for wrong, near in (("Feature", "_N/features"), ("_N/feature", "_N/features"), ("Train_msk", "_N/train_mask")):
        with pytest.warns(UserWarning, match=f"there are: _N/features, _N/train_mask; did you mean '{near}'.$"):
            sar.suffix_key_lookup(features, wrong)
    with pytest.warns(UserWarning, match="there are: _N/features, _N/train_mask$"):  # nothing is near
        sar.suffix_key_lookup(features, "qqqq")
    with pytest.warns(UserWarning, match="there are: none$"):
        assert sar.suffix_key_lookup({}, "features", expand_to_all=True, type_list=["_N"]).shape == (0,)


def test_a_misspelled_setting() -> None:
    known = {name: getattr(sar.Config, name) for name in dir(sar.Config) if not name.startswith("_")}
    for wrong, near in (("disable_rs", "disable_sr"), ("max_collective_sizes", "max_collective_size")):
        with pytest.raises(AttributeError, match=f"no setting '{wrong}'; did you mean '{near}'?"):
            setattr(sar.Config, wrong, 1)
        assert not hasattr(sar.Config, wrong)
    there = "no setting 'colour'; there are: allow_outside_paths, block_bytes, .*, wire_dtype$"
    with pytest.raises(AttributeError, match=there):
        sar.Config.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):  # an object's settings would be nobody's
        sar.Config().disable_sr = True
    assert {name: getattr(sar.Config, name) for name in known} == known
    for name in OLD_SETTINGS:
        setattr(sar.Config, name, getattr(sar.Config, name))


def test_type_checkers_find_every_name(tmp_path: Path) -> None:
    """What a package with ``py.typed`` only imports is private to pyright and ``mypy --strict``."""
    pytest.importorskip("basedpyright")
    modules = {"sar": sar, **{f"sar.{name}": getattr(sar, name) for name in ("comm", "function", "nn", "pyg")}}
    names = [f"{module}.{name}" for module, found in modules.items() for name in found.__all__]
    assert {"sar.Config", "sar.ingest", "sar.nn.SAGEConv"} <= set(names) and len(names) > 150
    (tmp_path / "script.py").write_text("import sar\nimport sar.pyg\n\nprint(" + ", ".join(names) + ")\n")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--project", tmp_path, "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
