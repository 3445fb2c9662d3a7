"""One process of the epoch benchmark. Reads commands from stdin, one per line, and answers each with a line of JSON:
``epochs K`` trains K epochs and tells their seconds, page faults and processor time, ``trace FILE`` writes the timeline
of one, ``memory`` tells what they took, ``links`` what has travelled. The first answer comes by itself when it is
ready.

    python bench/worker.py dgl GRAPH.npz ALLOCATOR MODEL        the whole graph, DGL alone
    python bench/worker.py pyg GRAPH.npz ALLOCATOR MODEL        the same by PyG; BENCH_EDGES, csr, sorted or coo, is how
                                                                it gets edges
    python bench/worker.py sar PARTS/NAME.json ALLOCATOR MODEL  one worker; rank and the others from the environment,
                                                                and BENCH_WAY, one of model.WAYS; with BENCH_RECORD,
                                                                rank 1 writes its calls to that file

BENCH_DROPOUT is the share of elements that is dropped after every layer but the last (0), BENCH_AUTOCAST 1 trains
under torch.autocast in bfloat16, on features in bfloat16.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time

import numpy as np
import torch
from torch import nn

import sar
from model import MODELS, Training, on_edges, on_graph, warm_up
from record import Recorder
from sar.cli.resident import reset_peak, resident

AUTOCAST = os.environ.get("BENCH_AUTOCAST") == "1"


def give_back() -> None:
    """Lets go of what is garbage, and has the allocator forget what it needed at its busiest, for loading say."""
    gc.collect()
    policy = os.environ["SAR_ALLOCATOR"]
    if policy != "default":
        sar.set_allocator(policy)


class Memory:
    """Resident sizes at the points that the figures are made of."""

    def __init__(self, engine_peaks=None) -> None:
        self.engine = engine_peaks  # () -> (live, peak) bytes by core/mem, or None
        give_back()
        self.after_imports = resident()["now"]
        self.before_training = 0
        self.loading = 0
        self.engine_before = 0

    def training_begins(self) -> None:
        self.loading = resident()["peak"] - self.after_imports
        give_back()
        reset_peak()
        self.before_training = resident()["now"]
        if self.engine is not None:
            from sar._engine import library as native

            native.call("sar_reset_peaks")
            self.engine_before = self.engine()["total"]["live"]

    def report(self) -> dict:
        now = resident()
        out = {
            "growth": now["peak"] - self.before_training,
            "total": now["peak"] - self.after_imports,
            "loading": self.loading,
            "resident": now["peak"],
            "shared": now["shared"],
        }
        if self.engine is not None:
            stats = self.engine()
            out["engine"] = {name: stats[name]["peak"] for name in stats}
            out["engine_growth"] = stats["total"]["peak"] - self.engine_before
            out["window_limit"] = sar.stats()["window"]["limit"]
        return out


def held() -> int:
    """Resident bytes that are not pages of files, which the kernel takes back as it likes."""
    now = resident()
    return now["now"] - now["files"]


def load_late(model: str, way: str) -> None:
    """What is imported and loaded at first use, before sizes are taken."""
    warm_up(model if model in MODELS else "sage")
    if AUTOCAST:
        warm_up("sage", autocast=True)
    if way in ("pyg", "pyg_act", "as_pyg"):
        import torch_geometric.nn  # noqa: F401


def whole_training(path: str, model: str, library: str) -> tuple[Training, Memory, dict]:
    """DGL or PyG alone."""
    load_late(model, library)
    reset_peak()
    memory = Memory()
    with np.load(path) as arrays:
        ends = torch.from_numpy(arrays["edge_index"])  # int32, as the file is
        features, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        mask = torch.from_numpy(arrays["train_mask"])
    if library == "dgl":
        import dgl

        graph = dgl.graph((ends[0], ends[1]), num_nodes=len(labels))
        graph.create_formats_()
        convolve = on_graph(graph)
    else:
        convolve = on_edges(pyg_edges(ends, len(labels), model))
    del ends
    n_classes, n_train = int(labels.max()) + 1, float(mask.sum())
    return Training(model, library, convolve, features, labels, mask, n_classes, n_train, nn.BatchNorm1d), memory, {}


def pyg_edges(ends: torch.Tensor, nodes: int, model: str):
    """By default what PyG is fastest on: a torch CSR matrix where its layer is one sparse product, sorted edges
    elsewhere."""
    from torch_geometric import EdgeIndex
    from torch_geometric.utils import to_torch_csr_tensor

    kind = os.environ.get("BENCH_EDGES", "csr" if model == "sage" else "sorted")
    if kind == "csr":  # torch multiplies a matrix and rows of one type alone
        ones = torch.ones(ends.shape[1], dtype=torch.bfloat16 if AUTOCAST else torch.float32)
        return to_torch_csr_tensor(ends.flip(0).long(), ones, size=(nodes, nodes))
    if kind == "coo":
        return ends.long()
    return EdgeIndex(ends.long(), sparse_size=(nodes, nodes)).sort_by("col").values.fill_cache_()


def sar_training(path: str, model: str) -> tuple[Training, Memory, dict]:
    way = os.environ.get("BENCH_WAY", "plain")
    load_late(model, way)
    reset_peak()
    memory = Memory(sar.memory_stats)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    if "BENCH_WINDOW" in os.environ:
        sar.Config.window_bytes = int(os.environ["BENCH_WINDOW"])
    sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
    data = sar.load_dgl_partition_data(path, rank, torch.device("cpu"))
    features, labels, mask = (
        sar.suffix_key_lookup(data.node_features, k) for k in ("features", "labels", "train_mask")
    )

    def engine() -> int:  # beside the window, which grows here too: its pages come when something travels
        stats = sar.memory_stats()
        return stats["total"]["live"] - stats["window"]["live"]

    before, accounted = held(), engine()
    graph = sar.construct_full_graph(data)
    del data
    sar.Config.disable_sr = way == "sa"
    edge_tensors = sum(tensor.nbytes for tensor in graph.edata.values())  # torch's, not the engine's
    structure = {
        "structure_resident": held() - before - edge_tensors,
        "structure_accounted": engine() - accounted,
    }
    if way == "one_shot":
        graph = graph.get_full_partition_graph()
    counts = torch.stack([labels.max() + 1, mask.sum()])
    n_train = counts[1:].clone()
    sar.comm.all_reduce(counts, "max")
    sar.comm.all_reduce(n_train, "sum")
    edges = sar.pyg.edge_index(graph) if way in ("pyg", "pyg_act", "pyg_prepared") else None
    training = Training(
        model,
        "dgl" if edges is None else "pyg",
        on_graph(graph) if edges is None else on_edges(edges),
        features,
        labels,
        mask.bool(),
        int(counts[0]),
        float(n_train),
        sar.DistributedBN1D,
        sar.sync_params,
        sar.gather_grads,
        way,
    )
    if way.endswith("prepared") or (edges is not None and hasattr(training.model, "model")):  # one of whole_models.py
        sar.prepare(training.model, graph if edges is None else edges)
    return training, memory, structure


def main() -> None:
    kind, path, allocator, model = sys.argv[1:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    os.environ["SAR_ALLOCATOR"] = allocator
    if allocator != "default":
        sar.set_allocator(allocator)  # before the first tensor, and for DGL and PyG as for SAR
    recorder = None
    if kind == "sar":
        if "BENCH_RECORD" in os.environ and os.environ["RANK"] == "1":
            recorder = Recorder(os.environ["BENCH_RECORD"])
        training, memory, ready = sar_training(path, model)
    else:
        training, memory, ready = whole_training(path, model, kind)
    training.model.drop(float(os.environ.get("BENCH_DROPOUT", "0")))
    if AUTOCAST:
        training.autocast, training.features = True, training.features.bfloat16()
    memory.training_begins()
    answer(ready)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "epochs":
            seconds, losses = [], []
            sent = bytes_sent(kind)
            before = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(int(rest[0])):
                begin = time.perf_counter()
                losses.append(training.epoch())
                seconds.append(time.perf_counter() - begin)
            used = resource.getrusage(resource.RUSAGE_SELF)
            costs = {
                "faults": (used.ru_minflt - before.ru_minflt) / len(seconds),
                "system": (used.ru_stime - before.ru_stime) / len(seconds),
                "processor": (used.ru_utime - before.ru_utime + used.ru_stime - before.ru_stime) / len(seconds),
            }
            costs["sent"] = (bytes_sent(kind) - sent) / len(seconds)
            answer({"seconds": seconds, "losses": losses, **costs})
        elif word == "trace":
            with sar.trace(rest[0]):
                training.epoch()
            answer({})
        elif word == "memory":
            answer(memory.report())
        elif word == "links":
            answer(travelled())
        elif word == "end":
            break
    if kind == "sar":
        sar.comm.barrier()
        if recorder is not None:
            recorder.save()
        sar.comm.shutdown()


def travelled() -> dict:
    """Payload, bytes and frames of this worker so far, each way, by communicator."""
    total: dict[str, dict[str, int]] = {}
    for link in sar.stats()["links"]:
        found = total.setdefault(link["communicator"], {})
        for way in ("sent", "recv"):
            for what in ("payload", "bytes", "frames"):
                found[f"{way}_{what}"] = found.get(f"{way}_{what}", 0) + link[f"{way}_{what}"]
    return total


def bytes_sent(kind: str) -> int:
    """What this process has sent to others, without frame headers."""
    if kind != "sar":
        return 0
    return sum(link["sent_payload"] for link in sar.stats()["links"])


def answer(content: dict) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
