"""What forward and backward of a layer add to the resident size: ``layers_memory.py sar`` (one worker) or ``dgl``.

Prints ``{case: MiB}``, a line for each. Both ways with the same allocator policy, measured in the second run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

os.environ["SAR_LAYERS_WIDER"] = "4"

import numpy as np  # noqa: E402
import torch  # noqa: E402

import sar  # noqa: E402
from sar.distributed.network import free_port  # noqa: E402
from tests.parity import cases_layers  # noqa: E402
from tests.parity.cases_layers import draw  # noqa: E402
from tests.support.graphs import Graph  # noqa: E402

NODES, EDGES = 4_000, 46_000


def graph_of(loops: bool) -> Graph:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, NODES, EDGES), rng.integers(0, NODES, EDGES)
    nodes = np.arange(NODES)
    other = src != dst if not loops else np.ones(EDGES, bool)
    dst = np.concatenate([dst[other], nodes if loops else np.roll(nodes, 1)])
    return Graph(NODES, np.concatenate([src[other], nodes]), dst, np.array([0, NODES]))


def status(name: str) -> float:
    """A size of ``/proc/self/status`` in MiB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":")) / 1024


def step(name: str, model: Any, graph: Any, inputs: list[Any]) -> None:
    given = cases_layers.tensors(inputs)
    out = cases_layers.call(name, model, graph, given)
    if any(o.requires_grad for o in out):
        values = [o.materialize() if hasattr(o, "materialize") else o for o in out]
        torch.autograd.backward(values, [torch.ones_like(v) for v in values])


def main(way: str) -> None:
    sar.set_allocator("compact")
    if way == "sar":
        sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    for name, spec in cases_layers.SPECS.items():
        whole = graph_of(spec.loops)
        inputs = draw(whole, name, "float32")
        if way == "sar":
            graph: Any = cases_layers.build(whole.part(0))
        else:
            import dgl

            graph = dgl.graph((torch.from_numpy(whole.src), torch.from_numpy(whole.dst)), num_nodes=NODES)
        model = cases_layers.make(name)
        step(name, model, graph, inputs)
        gc.collect()
        before = status("VmRSS")
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        step(name, model, graph, inputs)
        print(json.dumps({name: round(status("VmHWM") - before, 1)}), flush=True)
        del graph, model, inputs
        gc.collect()


if __name__ == "__main__":
    main(sys.argv[1])
