"""The graph object on one worker: columns, counts, what it refuses, and what its messages say."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest
import torch

import sar
import sar.function as fn
from sar.distributed import network
from tests.support.graphs import make
from tests.support.worker import build, settings


@pytest.fixture(scope="module")
def graph() -> Iterator[sar.GraphShardManager]:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    yield build(make("random", 1).part(0))
    sar.comm.shutdown()


N, E = 61, 400


def test_counts_and_types(graph: sar.GraphShardManager) -> None:
    g: Any = graph
    for count in ("num_nodes", "num_src_nodes", "num_dst_nodes"):
        for name in (count, count.replace("num_", "number_of_"), count + "_global"):
            assert getattr(g, name)() == getattr(g, name)("_N") == N, name
    assert g.num_edges() == g.number_of_edges("_E") == g.num_edges_global(("_N", "_E", "_N")) == E
    assert g.ntypes == g.srctypes == g.dsttypes == g.ntypes_global == ["_N"]
    assert g.etypes == g.etypes_global == ["_E"]
    assert g.canonical_etypes == g.canonical_etypes_global == [("_N", "_E", "_N")]
    assert g.to_canonical_etype("_E") == g.to_canonical_etype(None) == ("_N", "_E", "_N")
    assert g.get_etype_id("_E") == g.get_ntype_id("_N") == 0
    assert g.is_block and g.is_homogeneous and g.device == torch.device("cpu") and g.idtype == torch.int64
    assert g.to("cpu") is g and g.to(torch.device("cpu")) is g
    assert g.node_ranges == [(0, N)] and g.tgt_node_range == (0, N)
    assert int(g.in_degrees().sum()) == int(g.out_degrees().sum()) == E
    assert torch.equal(g.in_degrees([3, 5]), g.in_degrees()[[3, 5]])
    assert g.batch_num_nodes().tolist() == [N] and g.batch_num_edges().tolist() == [E]
    assert "61 of 61 nodes" in repr(g)
    assert isinstance(g, sar.GraphShardManager) and issubclass(sar.HeteroGraphShardManager, sar.GraphShardManager)


def test_columns(graph: sar.GraphShardManager) -> None:
    g, a, b, c = graph, torch.randn(N, 2), torch.randn(N, 2), torch.randn(N, 2)
    with g.local_scope():
        g.srcdata["h"] = a
        assert g.dstdata["h"] is a and g.ndata["h"] is a
        g.dstdata["h"] = b  # a pair of features, as layers for blocks store them
        assert g.srcdata["h"] is a and g.dstdata["h"] is b
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))  # as DGL has it, the next step reads what this one wrote
        assert g.srcdata["h"] is g.dstdata["h"] is g.ndata["h"]
        first = g.ndata.pop("h")
        assert "h" not in g.srcdata and "h" not in g.dstdata and len(g.ndata) == 0
        g.srcdata["h"] = a
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "other"))
        assert torch.equal(g.srcdata["other"], first)
        g.dstdata["only"] = c
        assert g.srcdata["only"] is c and g.ndata["only"] is c
        assert set(g.srcdata) == set(g.dstdata) == set(g.ndata) == {"h", "other", "only"}
        del g.dstdata["only"]
        assert "only" not in g.ndata
        g.edata["w"] = torch.ones(E)
        with g.local_scope():
            g.edata["w"] = torch.zeros(E)
            g.ndata["inner"] = a
            del g.ndata["h"]
        assert g.edata["w"].sum() == E and "inner" not in g.ndata and g.ndata["h"] is a
        assert "'h': torch.float32 (61, 2)" in repr(g.ndata) and "'w'" in repr(g.edata)
    assert not g.ndata and not g.srcdata and not g.edata


def test_an_exception_leaves_the_scope(graph: sar.GraphShardManager) -> None:
    with pytest.raises(ZeroDivisionError), graph.local_scope():
        graph.ndata["h"] = torch.ones(N)
        raise ZeroDivisionError
    assert not graph.ndata


def test_one_relation_as_a_slice(graph: sar.GraphShardManager) -> None:
    part = graph["_E"]
    assert part.num_edges() == E and part.num_src_nodes() == part.num_dst_nodes() == part.num_nodes() == N
    with graph.local_scope():
        part.srcdata["h"] = torch.ones(N, 1)
        part.update_all(fn.copy_u("h", "m"), fn.sum("m", "n"))
        assert torch.equal(graph.dstdata["n"].view(-1), graph.in_degrees().float())
    with pytest.raises(KeyError, match="'likes' is unknown; there are:.*_E"):
        graph["likes"]


def refused(graph: Any, error: type[Exception], match: str, u: Any = None, e: Any = None, **functions: Any) -> None:
    message = functions.get("message", fn.u_mul_e("h", "w", "m") if e is not None else fn.copy_u("h", "m"))
    reduce = functions.get("reduce", fn.sum("m", "out"))
    with graph.local_scope(), pytest.raises(error, match=match):
        graph.srcdata["h"] = torch.ones(N, 2) if u is None else u
        if e is not None:
            graph.edata["w"] = e
        graph.update_all(message, reduce, functions.get("apply"))
    assert "out" not in graph.dstdata


def test_bad_columns(graph: sar.GraphShardManager) -> None:
    refused(graph, ValueError, r"srcdata\['h'\] has shape \(60, 2\), but this worker has 61 nodes", torch.ones(60, 2))
    refused(graph, ValueError, r"edata\['w'\] has shape \(3,\), but this worker has 400 in-edges", None, torch.ones(3))
    refused(graph, TypeError, r"srcdata\['h'\] is torch.int64.*float32, float64 or bfloat16", torch.ones(N, 2).long())
    refused(graph, TypeError, r"srcdata\['h'\] is float16: .*bfloat16", torch.ones(N, 2).half())
    double, per_head = torch.ones(E).double(), torch.ones(E, 3)
    refused(graph, TypeError, r"srcdata\['h'\] is torch.float32 and edata\['w'\] is torch.float64", None, double)
    refused(graph, ValueError, r"\(61, 3, 4\).*\(400, 3\).*as \(400, 3, 1\)", torch.ones(N, 3, 4), per_head)
    refused(graph, TypeError, "must be a torch tensor, not list", [1.0] * N)
    refused(graph, TypeError, "is on meta.*CPU", torch.ones(N, 2, device="meta"))
    refused(graph, KeyError, r"no srcdata\['x'\]; there are: h", message=fn.copy_u("x", "m"))
    refused(graph, KeyError, r"no edata\['x'\]", message=fn.u_mul_e("h", "x", "m"))
    with pytest.raises(TypeError, match="CPU for now, not on cuda"):
        graph.to("cuda")


def test_functions_that_do_not_run(graph: sar.GraphShardManager) -> None:
    xor = fn.BinaryMessage("xor", 0, 1, "h", "h", "m")
    refused(graph, NotImplementedError, "message u_xor_v is unknown.*copy_u", message=xor)
    refused(graph, NotImplementedError, "reducer prod is unknown.*sum", reduce=fn.Reduce("prod", "m", "out"))
    refused(graph, TypeError, "message must be a function", message="h")
    refused(graph, TypeError, "reducer must be a function", reduce=None)
    refused(graph, ValueError, "'m'.*'q'", reduce=fn.sum("q", "out"))


def test_gradients_that_cannot_be(graph: sar.GraphShardManager) -> None:
    u, e = torch.randn(N, 2, requires_grad=True), torch.randn(E, requires_grad=True)

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with graph.local_scope():
            graph.srcdata["h"], graph.edata["w"] = x, w
            graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
            return graph.dstdata["out"]

    (g,) = torch.autograd.grad(run(u, e).square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match=r"update_all\(u_mul_e, sum\) cannot be differentiated twice"):
        g.sum().backward()
    x = u * 1
    out = run(x, e)
    with torch.no_grad():
        x.zero_()  # saved for the gradient of e
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    with torch.no_grad():
        assert not run(u, e).requires_grad
    assert not run(u.detach(), e.detach()).requires_grad
    out = run(u, e)
    first = torch.autograd.grad(out.sum(), (u, e), retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(out.sum(), (u, e))))


def test_gradcheck(graph: sar.GraphShardManager) -> None:
    """By finite differences, not against another implementation."""
    small = build({"start": np.array([0, 5]), "src": np.array([0, 1, 1, 4, 3, 3]), "dst": np.array([1, 0, 1, 1, 4, 4])})
    u = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    e = torch.randn(6, 2, 1, dtype=torch.float64, requires_grad=True)

    def run(x: torch.Tensor, w: torch.Tensor, reduce: str) -> torch.Tensor:
        with small.local_scope():
            small.srcdata["h"], small.edata["w"] = x, w
            small.update_all(fn.u_mul_e("h", "w", "m"), getattr(fn, reduce)("m", "out"))
            return small.dstdata["out"]

    for reduce in ("sum", "mean"):
        assert torch.autograd.gradcheck(lambda x, w, r=reduce: run(x, w, r), (u, e))


def test_the_window(graph: sar.GraphShardManager) -> None:
    with settings(window_bytes=8 << 20):
        with graph.local_scope():
            graph.srcdata["h"] = torch.ones(N, 1)
            graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
        assert sar.stats()["window"]["limit"] == 8 << 20


def test_features_by_suffix() -> None:
    kinds = torch.tensor([0, 1, 1, 0], dtype=torch.int32)
    features = {"paper/feat": torch.ones(2, 3), "author/name": torch.arange(2), "paper/x_name": torch.zeros(2)}
    features["_TYPE"] = kinds
    find = sar.suffix_key_lookup
    assert find(features, "feat") is features["paper/feat"]
    assert find(features, "name") is features["author/name"]  # the exact name before one that ends so
    missing = find(features, "labels")
    assert missing.dtype == torch.int64 and missing.shape == (0,)
    assert find(features, "name", True, ["paper", "author"]).tolist() == [0, 0, 1, 0]
    assert find(features, "feat", expand_to_all=True, type_list=["paper", "author"])[:, 0].tolist() == [1, 0, 0, 1]
    assert find({"a/w": kinds, "b/w": kinds, "c": kinds}, "c") is kinds
    with pytest.raises(ValueError, match="several features end with 'w': a/w, b/w"):
        find({"a/w": kinds, "b/w": kinds}, "w")
    with pytest.raises(ValueError, match="type_list"):
        find(features, "feat", True)
    with pytest.raises(ValueError, match="'paper'.*not in type_list: author, venue"):
        find(features, "feat", True, ["author", "venue"])


def test_functions_named_like_modules() -> None:
    import sar.logging_setup
    from sar.logging_setup import logger, logging_setup

    assert sar.logging_setup is logging_setup and sar.logger is logger
    sar.logging_setup("WARNING", 0, 1)
    with pytest.raises(ValueError, match="'LOUD'"):
        sar.logging_setup("LOUD")
