"""``sar evaluate``: accuracy, F1 and AUC of a trained model on every split."""

from __future__ import annotations

import argparse
from typing import Any

from .infer import _MODEL, add_model_options, start_job
from .launch import add_worker_options
from .output import Failure


def add(commands: Any) -> None:
    p = commands.add_parser(
        "evaluate",
        help="accuracy, F1 and AUC of a trained model",
        description="Computes the output of a trained model for every node, as `sar infer` does, and metrics of it on "
        "the splits train_mask, val_mask and test_mask, as far as there are such. Accuracy counts nodes; F1 and AUC "
        "(of each class against the others) are means over classes. Nodes whose label is negative are left out. Values "
        "are those of torchmetrics on the whole graph; for AUC the scores of a split are gathered on rank 0.\n\n"
        + _MODEL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(p)
    p.add_argument("--labels", default="labels", metavar="NAME", help="the node feature with labels (default: labels)")
    p.add_argument(
        "--metrics", default="accuracy,f1,auc", metavar="M,M,...", help="which of them (default: accuracy,f1,auc)"
    )
    p.add_argument("--json", dest="as_json", action="store_true", help="print JSON in place of a table")
    add_worker_options(p.add_argument_group("workers"))
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from sar.inference.metrics import METRICS, library

    wanted = [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    for name in wanted:
        if name not in METRICS:
            raise Failure(f"--metrics: there is no metric {name!r}; there are: {', '.join(METRICS)}", 2)
    library()
    arguments.metrics = wanted
    return start_job(arguments)
