"""``sar infer``: the output of a trained model for every node of a partitioned graph."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from .launch import add_worker_options, check_places
from .output import Failure, add_outside_paths

_MODEL = """\
MODULE:FUNCTION, or FILE.py:FUNCTION, returns the model. It is called as model(graph, x), where x is the node feature
--features, [own nodes, width]; with several node types x is {type: tensor}. A model of PyG, whose second argument is
called edge_index or edge_index_dict, is called as model(x, edge_index). Where the module has a function
predict(model, graph, features), that is called in place of it, with all node features by name ("type/name"). All
workers run the same code, on their own nodes; the model sees the whole graph.
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "infer",
        help="compute a trained model's output for every node",
        description="Computes the output of a trained model for every node of a graph: exactly, from all neighbours, "
        "and writes it at the nodes' original ids.\n\n" + _MODEL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(p)
    p.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="NAME.parquet: a directory with a file for each worker, which `sar gather` joins; NAME.npy: one array, on "
        "a filesystem that all workers share",
    )
    p.add_argument("--embeddings", metavar="LAYER", help="write the output of this layer of the model, as model.LAYER")
    p.add_argument("--argmax", action="store_true", help="write the number of the largest column, the predicted class")
    add_worker_options(p.add_argument_group("workers"))
    p.set_defaults(run=run)


def add_model_options(p: argparse.ArgumentParser) -> None:
    """What ``sar infer`` and ``sar evaluate`` have in common."""
    p.add_argument("model", metavar="MODULE:FUNCTION", help="a function that returns the model")
    p.add_argument(
        "--checkpoint",
        required=True,
        metavar="FILE",
        help="a state dict in a file of safetensors; or a directory of sar.save_checkpoint; or, with torch 2.6 and "
        "newer, what torch.save makes of a state dict",
    )
    p.add_argument(
        "--data",
        required=True,
        metavar="DIR/NAME.json",
        help="the description that `sar partition` or DGL wrote, or the directory it lies in",
    )
    p.add_argument("-n", "--workers", type=int, metavar="N", help="workers on this machine (default: the parts)")
    p.add_argument("--features", default="features", metavar="NAME", help="the node feature x (default: features)")
    p.add_argument("--ntype", metavar="TYPE", help="the node type whose rows are meant, where there are several")
    p.add_argument("--model-args", default="{}", metavar="JSON", help="arguments of FUNCTION, by name")
    p.add_argument(
        "--autocast", action="store_true", help="compute in bfloat16 under torch.autocast, in about half the memory"
    )
    add_outside_paths(p)


def run(arguments: argparse.Namespace) -> int:
    out = arguments.out
    suffix = os.path.splitext(out)[1]
    if suffix not in (".npy", ".parquet"):
        raise Failure(f"--out {out} does not say the format: give a name that ends in .npy or .parquet", 2)
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise Failure(f"--out {out}: there is no directory {os.path.dirname(out)}")
    if suffix == ".parquet":
        from sar.results.files import arrow

        arrow()
    return start_job(arguments)


def start_job(arguments: argparse.Namespace) -> int:
    """Starts the workers of a job. What can be seen to be wrong is said before."""
    from sar.data.directory import description_of

    from .info import read_description
    from .job import Job, start

    path = description_of(arguments.data)
    parts = read_description(path)[1]
    if arguments.workers is None:
        if parts % arguments.nodes:
            raise Failure(f"{path} holds {parts} parts for {arguments.nodes} machines: give each its -n", 2)
        arguments.workers = parts // arguments.nodes
    check_places(arguments)
    if arguments.workers * arguments.nodes != parts:
        raise Failure(f"{path} holds {parts} parts: start one worker for each, with -n {parts} in all", 2)
    if not os.path.exists(arguments.checkpoint):
        raise Failure(f"there is no checkpoint {arguments.checkpoint}")
    if ":" not in arguments.model:
        raise Failure(f"model {arguments.model!r}: give MODULE:FUNCTION or FILE.py:FUNCTION", 2)
    try:
        model_args = json.loads(arguments.model_args)
    except ValueError as error:
        raise Failure(f"--model-args is not JSON: {error}", 2) from None
    if not isinstance(model_args, dict):
        raise Failure("--model-args is not a JSON object: give arguments by name, such as '{\"hidden\": 64}'", 2)
    job = {name: value for name, value in vars(arguments).items() if name != "run"}
    job.update(data=path, model_args=model_args)
    return start(Job(["-m", "sar.inference.job", json.dumps(job)], prefix=False), arguments)
