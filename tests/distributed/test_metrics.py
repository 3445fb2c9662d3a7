"""Metrics of a job: ``sar.metrics``, and ``SAR_METRICS`` for Prometheus, files and TensorBoard."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sar.report.events import read
from tests.distributed import cases_metrics
from tests.support.command import run_sar
from tests.support.graphs import make
from tests.support.sessions import Workers


def parts(workers: Workers) -> list[dict[str, Any]]:
    graph = make("random", workers.world, seed=8)
    return graph.shares()


def test_metrics_are_those_of_the_statistics(few: Workers) -> None:
    for rank, found in enumerate(few.run(cases_metrics.told, parts(few))):
        before, after, stats = found["before"], found["after"], found["stats"]
        assert (before["epoch"], before["values"], before["phases"]) == (None, {}, {})
        assert (after["rank"], after["world"], after["epoch"]) == (rank, few.world, 3)
        assert after["values"] == {"loss": found["losses"][-1], "accuracy": {"train": 0.3, "test": None}}
        assert after["took"] > 0
        peers = {str(r) for r in range(few.world)} - {str(rank)}
        for field, counter in (("sent", "sent_bytes"), ("received", "recv_bytes")):
            assert after[field] == {p: sum(of[counter] for of in stats["links"] if str(of["peer"]) == p) for p in peers}
        waited = after["waited"]
        assert waited.keys() == peers and all(0 <= before["waited"][p] <= waited[p] for p in peers)
        in_operations = sum(of["wait_seconds"] for of in stats["operations"].values())
        assert sum(waited.values()) == pytest.approx(in_operations)
        assert after["slowest_peer"] == (int(max(waited, key=waited.__getitem__)) if peers else None)
        assert after["operations"]["aggregation"][0] == stats["operations"]["aggregation"]["count"]
        assert after["window"][0] == stats["window"]["limit"]
        assert after["memory"]["structure"][1] > 0


def test_collecting_changes_nothing_that_is_sent(two: Workers, tmp_path: Path) -> None:
    """One rank collects, and another does not."""
    given = parts(two)
    plain = two.run(cases_metrics.sent, given, setting=None)
    assert all(any(numbers) for found in plain for numbers in found["links"].values())
    for setting in (f"jsonl:{tmp_path}/one.jsonl", "prometheus:0", f"tensorboard:{tmp_path}/board"):
        one = [{**arguments, "setting": setting if rank == 1 else None} for rank, arguments in enumerate(given)]
        assert two.run(cases_metrics.sent, one) == plain


def test_prometheus(few: Workers) -> None:
    for rank, found in enumerate(few.run(cases_metrics.scraped, parts(few))):
        said = found["metrics"]
        assert found["address"] == "127.0.0.1" and found["closed"]
        samples = {}
        for family in text_string_to_metric_families(found["text"]):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert labels.pop("rank") == str(rank)
                samples[sample.name, tuple(labels.values())] = sample.value
        assert samples["sar_epoch", ()] == 2 and samples["sar_epoch_seconds", ()] == said["took"]
        assert samples["sar_value", ("loss",)] == found["losses"][-1]
        assert samples["sar_value", ("accuracy/train",)] == 0.2
        assert ("sar_value", ("accuracy/test",)) not in samples
        for peer in said["sent"]:
            assert samples["sar_sent_bytes_total", (peer,)] == said["sent"][peer]
            assert samples["sar_received_bytes_total", (peer,)] == said["received"][peer]
            assert samples["sar_peer_wait_seconds_total", (peer,)] == said["waited"][peer]
        if few.world > 1:
            assert samples["sar_slowest_peer", ()] == said["slowest_peer"]
        for kind, (count, _, wait) in said["operations"].items():
            assert samples["sar_operations_total", (kind,)] == count
            assert samples["sar_operation_wait_seconds_total", (kind,)] == wait
        assert samples["sar_window_bytes", ("limit",)] == said["window"][0]
        assert {key[0] for name, key in samples if name == "sar_memory_peak_bytes"} == set(said["memory"])


def test_lines_are_those_of_a_run_log(few: Workers, tmp_path: Path) -> None:
    losses = few.run(cases_metrics.written, parts(few), setting=f"jsonl:{tmp_path}/run/")
    run = read(str(tmp_path / "run"))
    assert run.world == few.world and not run.missing
    assert [[e.values["loss"] for e in worker.epochs] for worker in run.workers] == losses
    few.run(cases_metrics.written, parts(few), setting=f"jsonl:{tmp_path}/one")
    names = ["one"] if few.world == 1 else [f"one.rank{r}.jsonl" for r in range(few.world)]
    for rank, name in enumerate(names):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert [line["event"] for line in lines] == ["start", "epoch", "epoch"] and lines[0]["rank"] == rank
        assert lines[1].keys() == json.loads((tmp_path / "run" / "rank00000.jsonl").read_text().splitlines()[1]).keys()


def test_tensorboard(two: Workers, tmp_path: Path) -> None:
    losses = two.run(cases_metrics.written, parts(two), setting=f"tensorboard:{tmp_path}")
    for rank in range(2):
        board = EventAccumulator(str(tmp_path / f"rank{rank:05d}"))
        board.Reload()
        found = [(event.step, event.value) for event in board.Scalars("loss")]
        assert found == [(1, pytest.approx(losses[rank][0])), (2, pytest.approx(losses[rank][1]))]
        tags = board.Tags()["scalars"]
        wanted = {"accuracy/train", "memory_bytes/tensors", f"sent_bytes/{1 - rank}", "epoch_seconds", "slowest_peer"}
        assert wanted <= set(tags)


@pytest.mark.parametrize(
    ("setting", "kind", "text"),
    [
        ("graphite:9100", "ValueError", "'graphite:9100': give one of prometheus:PORT, "),
        ("prometheus", "ValueError", "give one of prometheus:PORT"),
        ("jsonl:", "ValueError", "jsonl:FILE"),
        ("prometheus:http", "ValueError", "'http' is no port"),
        ("prometheus:99999", "ValueError", "'99999' is no port"),
        ("prometheus:65535", "ValueError", "rank 1 would listen at port 65536"),
        ("prometheus:192.0.2.1:9100", "OSError", "at 192.0.2.1, port 9101, for Prometheus, which fails"),
        ("jsonl:/no/such/folder/run.jsonl", "FileNotFoundError", "SAR_METRICS=jsonl:/no/such/folder/run.jsonl: No"),
        ("jsonl:/dev/null/", "FileExistsError", "SAR_METRICS=jsonl:/dev/null/"),
        ("tensorboard:/dev/null", "NotADirectoryError", "SAR_METRICS=tensorboard:/dev/null"),
    ],
)
def test_settings_that_are_none(two: Workers, setting: str, kind: str, text: str) -> None:
    said = two.run(cases_metrics.refused, setting=setting)[1]
    assert said[0] == kind and text in said[1], said


def test_port_in_use(two: Workers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        kind, text = two.run(cases_metrics.refused, setting=f"prometheus:{port - 1}")[1]
    assert kind == "OSError" and f"rank 1 listens at 127.0.0.1, port {port}, for Prometheus, which is in use" in text


@pytest.mark.parametrize(
    ("setting", "library"), [("prometheus:0", "prometheus_client"), ("tensorboard:x", "tensorboard")]
)
def test_libraries_that_are_missing(two: Workers, setting: str, library: str) -> None:
    for kind, text in two.run(cases_metrics.refused, setting=setting, without=library):
        assert kind == "MissingLibraryError"
        assert f"needs {library} " in text and text.endswith("pip install 'sar-gnn[metrics]'")


def test_a_full_disk_does_not_end_the_run(two: Workers, tmp_path: Path) -> None:
    for losses, left_out in two.run(cases_metrics.disk_full, parts(two), setting=f"jsonl:{tmp_path}/full.jsonl"):
        assert len(losses) == 2 and left_out


SCRIPT = """
import os
import sar
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    os.environ.pop("SAR_METRICS")
sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["MASTER_PORT"]))
sar.log_epoch(1, loss=0.5)
sar.comm.barrier()
print("epoch", sar.metrics()["epoch"])
"""


def test_at_the_start_of_a_job(tmp_path: Path) -> None:
    """A worker whose metrics cannot be written ends the job, and the others hear why."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_sar("launch", "-n", 2, script, SAR_METRICS=f"jsonl:{tmp_path}/run.jsonl")
    assert done.returncode == 0 and done.stdout.count("epoch 1") == 2, done.stderr
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["run.rank1.jsonl"]
    done = run_sar("launch", "-n", 2, script, SAR_METRICS=f"jsonl:{tmp_path}/no/run.jsonl")
    assert done.returncode == 1
    assert "[0] sar.errors.RemoteError: rank 1" in done.stderr and "no/run.rank1.jsonl" in done.stderr
