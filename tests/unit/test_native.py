"""Calls across the C interface: tensors, errors, one runtime, forks."""

from __future__ import annotations

import ctypes as ct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from sar import errors
from sar._engine import library as native, signatures


def ref(t: object) -> object:
    return ct.byref(native.tensor(t))


INDPTR = torch.tensor([0, 2, 2, 3])
INDICES = torch.tensor([1, 4, 0], dtype=torch.int32)


def spmm(indptr: object, indices: object, w: object, x: object, y: object) -> None:
    native.call("sar_kernel_spmm", *(None if t is None else ref(t) for t in (indptr, indices, w, x, y)))


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [None, 1, 2])
def test_spmm_and_sddmm(dtype: torch.dtype, heads: int | None) -> None:
    x, g = torch.randn(5, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    w = None if heads is None else torch.randn(3, heads, dtype=dtype)
    rows = torch.repeat_interleave(torch.arange(3), INDPTR.diff())
    messages = x[INDICES.long()].view(3, heads or 1, -1)
    weighted = messages if w is None else messages * w[:, :, None]
    want = torch.zeros(3, 4, dtype=dtype).index_add_(0, rows, weighted.reshape(3, 4))
    y = torch.full((3, 4), torch.nan, dtype=dtype)
    spmm(INDPTR, INDICES, w, x, y)
    torch.testing.assert_close(y, want)

    dw = torch.full((3, heads or 1), torch.nan, dtype=dtype)
    native.call("sar_kernel_sddmm", ref(INDPTR), ref(INDICES), ref(x), ref(g), ref(dw))
    torch.testing.assert_close(dw, (messages * g[rows].view_as(messages)).sum(-1))


def test_numpy_arrays_and_empty_tensors() -> None:
    x, y = np.random.randn(5, 4), np.empty((3, 4))
    spmm(INDPTR.numpy(), INDICES.numpy(), None, x, y)
    np.testing.assert_allclose(y, [x[1] + x[4], np.zeros(4), x[0]])
    spmm(torch.zeros(1, dtype=torch.int64), INDICES[:0], None, torch.empty(0, 4), torch.empty(0, 4))


def test_nan_is_carried() -> None:
    x, y = torch.zeros(5, 2), torch.zeros(3, 2)
    x[4, 1] = torch.nan
    spmm(INDPTR, INDICES, torch.zeros(3), x, y)
    assert y[0].isnan().tolist() == [False, True]


X, Y = torch.ones(5, 4), torch.empty(3, 4)


@pytest.mark.parametrize(
    ("args", "kind", "says"),
    [
        ((INDPTR, INDICES, None, X.t(), Y), ValueError, r"tensor x of shape \[4, 5\] has strides \[1, 4\]"),
        ((INDPTR, INDICES, None, X.int(), Y), TypeError, "tensor x is int32"),
        ((INDPTR, INDICES, None, X.half(), Y), TypeError, "tensor x is float16"),
        ((INDPTR, INDICES, None, X, Y.double()), TypeError, "tensor y is float64 and x is float32"),
        ((INDPTR, INDICES, None, X, Y[:2]), ValueError, r"y has shape \[2, 4\]"),
        ((INDPTR.int(), INDICES, None, X, Y), TypeError, "tensor indptr is int32, and must be int64"),
        ((INDPTR[:, None], INDICES, None, X, Y), ValueError, r"indptr has shape \[4, 1\]"),
        ((INDPTR[:3], INDICES, None, X, Y[:2]), ValueError, "indptr must begin with 0 and end with 3"),
        ((torch.tensor([0, 2, 1, 3]), INDICES, None, X, Y), ValueError, r"indptr\[2\] is 1, below indptr\[1\]"),
        ((INDPTR, INDICES + 3, None, X, Y), ValueError, r"indices\[1\] is 7: x has 5 rows"),
        ((INDPTR, INDICES - 1, None, X, Y), ValueError, r"indices\[2\] is -1: x has 5 rows"),
        ((INDPTR, INDICES, torch.ones(3, 3), X, Y), ValueError, "3 heads do not divide the 4 columns"),
        ((INDPTR, INDICES, torch.ones(2), X, Y), ValueError, r"w has shape \[2\]: indices of length 3"),
        ((INDPTR, INDICES, None, torch.tensor(1.0), Y), ValueError, "tensor x has no dimensions"),
        ((None, INDICES, None, X, Y), ValueError, "tensor indptr is NULL"),
    ],
)
def test_bad_tensors(args: tuple[object, ...], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        spmm(*args)


class Matrix:
    """A prepared matrix."""

    def __init__(self, indptr: torch.Tensor, indices: torch.Tensor, columns: int) -> None:
        self.handle = ct.c_uint64()
        native.call("sar_matrix_create", ref(indptr), ref(indices), columns, ct.byref(self.handle))

    def spmm(self, w: object, x: object, y: object) -> None:
        native.call("sar_matrix_spmm", self.handle, *(None if t is None else ref(t) for t in (w, x, y)))

    def free(self) -> None:
        native.call("sar_matrix_free", self.handle)


def structure() -> int:
    """Bytes of structure that the engine holds."""
    return int(native.call("sar_memory_stats")["structure"]["live"])


def test_prepared_matrix_keeps_nothing_of_the_caller() -> None:
    before = structure()
    indptr, indices = INDPTR.clone(), INDICES.clone()
    matrix = Matrix(indptr, indices, 5)
    assert structure() > before
    indptr.zero_()
    indices.fill_(-1)
    for dtype in (torch.float32, torch.float64):
        for w in (None, torch.randn(3, 2, dtype=dtype)):
            x, y, want = torch.randn(5, 4, dtype=dtype), torch.empty(3, 4, dtype=dtype), torch.empty(3, 4, dtype=dtype)
            matrix.spmm(w, x, y)
            spmm(INDPTR, INDICES, w, x, want)
            assert torch.equal(y, want)
    matrix.free()
    assert structure() == before
    with pytest.raises(RuntimeError, match="matrix is closed"):
        matrix.spmm(None, X, Y)
    with pytest.raises(RuntimeError, match="matrix is closed"):
        matrix.free()


def test_prepared_matrix_with_an_order_has_the_same_bits() -> None:
    blocks, size, degree = 20, 500, 12
    nodes = blocks * size
    random = np.random.default_rng(5)
    names = random.permutation(nodes)
    columns = names // size * size + random.integers(0, size, (degree, nodes))  # of rows in the order of names
    indices = np.empty((nodes, degree), np.int32)
    indices[np.arange(nodes)] = np.sort(np.argsort(names)[columns], axis=0).T
    indptr = torch.arange(0, nodes * degree + 1, degree)
    before = structure()
    matrix = Matrix(indptr, torch.from_numpy(indices.ravel()), nodes)
    assert structure() - before > 4 * nodes * degree + 20 * nodes  # there is an order
    x, w = torch.randn(nodes, 47), torch.randn(nodes * degree)
    for weights in (None, w):
        y, want = torch.full_like(x, torch.nan), torch.empty_like(x)
        matrix.spmm(weights, x, y)
        spmm(indptr, torch.from_numpy(indices.ravel()), weights, x, want)
        assert torch.equal(y, want)
    matrix.free()


def test_bad_prepared_matrices() -> None:
    with pytest.raises(ValueError, match=r"indices\[1\] is 4: the matrix has 4 columns"):
        Matrix(INDPTR, INDICES, 4)
    with pytest.raises(ValueError, match="num_cols is -1"):
        Matrix(INDPTR, INDICES, -1)
    matrix = Matrix(INDPTR, INDICES, 5)
    with pytest.raises(ValueError, match=r"x has shape \[6, 4\]: a matrix of 5 columns"):
        matrix.spmm(None, torch.ones(6, 4), Y)
    with pytest.raises(TypeError, match="tensor x is int32"):
        matrix.spmm(None, X.int(), Y)
    with pytest.raises(ValueError, match=r"y has shape \[2, 4\]"):
        matrix.spmm(None, X, Y[:2])
    matrix.free()


def test_tensors_that_python_refuses() -> None:
    with pytest.raises(TypeError, match="works on CPU tensors; this one, of shape \\[2\\], is on meta"):
        native.tensor(torch.empty(2, device="meta"))
    with pytest.raises(TypeError, match="complex64"):
        native.tensor(torch.empty(2, dtype=torch.complex64))
    with pytest.raises(TypeError, match="not list"):
        native.tensor([1, 2])


def test_device_and_dtype_are_checked_in_the_engine_too() -> None:
    x = native.tensor(X)
    x.device.device_type = 2
    with pytest.raises(TypeError, match="device type 2"):
        native.call("sar_kernel_spmm", ref(INDPTR), ref(INDICES), None, ct.byref(x), ref(Y))
    x = native.tensor(X)
    x.data += 2
    with pytest.raises(ValueError, match="not aligned to its 4-byte elements"):
        native.call("sar_kernel_spmm", ref(INDPTR), ref(INDICES), None, ct.byref(x), ref(Y))
    x = native.tensor(X)
    x.shape[0] = 1 << 62
    with pytest.raises(ValueError, match="more elements than memory can hold"):
        native.call("sar_kernel_spmm", ref(INDPTR), ref(INDICES), None, ct.byref(x), ref(Y))


def test_byte_offset_moves_the_data() -> None:
    x, y = native.tensor(torch.cat([torch.zeros(2), X.flatten()])), torch.empty(3, 4)
    moved = native.tensor(X)
    moved.data, moved.byte_offset = x.data, 8
    native.call("sar_kernel_spmm", ref(INDPTR), ref(INDICES), None, ct.byref(moved), ref(y))
    assert y[:, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_dtypes_of_torch_and_numpy_agree(name: str) -> None:
    mine, other = native.tensor(torch.zeros(2, dtype=getattr(torch, name))), native.tensor(np.zeros(2, dtype=name))
    for field in ("code", "bits", "lanes"):
        assert getattr(mine.dtype, field) == getattr(other.dtype, field)
    assert mine.dtype.bits == 8 * torch.zeros(1, dtype=getattr(torch, name)).element_size()


def test_each_thread_has_its_own_last_error() -> None:
    library = native._load().functions
    assert library["sar_set_num_threads"](-7) == 1
    seen = []

    def other() -> None:
        seen.append(library["sar_last_error"]())
        library["sar_set_num_threads"](-8)
        seen.append(library["sar_last_error"]())

    t = threading.Thread(target=other)
    t.start()
    t.join()
    assert seen[0] == b""
    assert b"-8" in seen[1]
    assert b"-7" in library["sar_last_error"]()


def test_a_caller_with_a_shorter_error_struct() -> None:
    engine = native._load()
    engine.functions["sar_set_num_threads"](0)
    info = signatures.TYPES["sar_error_info"](-5, message=b"untouched")
    info.size = type(info).message.offset
    engine.functions["sar_last_error_info"](ct.byref(info))
    assert (info.status, info.rank, info.message) == (1, -1, b"untouched")


def test_handles() -> None:
    with pytest.raises(ValueError, match="handle is 0"):
        native.call("sar_session_close", 0)
    with pytest.raises(ValueError, match="0x7b is not a handle"):
        native.call("sar_graph_free", 123)


def test_wrong_name() -> None:
    with pytest.raises(RuntimeError, match="is not in sar.h"):
        native.call("sar_no_such_thing")


def test_allocator() -> None:
    code = """
from sar._engine import library as _native
_native.call("sar_set_allocator", 0)
_native.call("sar_set_allocator", 1)
_native.call("sar_set_allocator", 0)
try:
    _native.call("sar_set_allocator", 3)
except ValueError as e:
    print(e)
"""
    done = python(code)
    assert "0 is default, 1 compact and 2 pool" in done.stdout, done.stderr


def test_one_runtime_for_both_faces() -> None:
    before = native.face().Threads()
    try:
        native.call("sar_set_num_threads", 3)
        assert native.face().Threads() == 3
    finally:
        native.call("sar_set_num_threads", before)


def test_fork_after_first_use_raises() -> None:
    code = """
import os
from sar._engine import library as _native
def child():
    try:
        _native.call("sar_set_num_threads", 1)
    except RuntimeError as e:
        print(e, flush=True)
def fork():
    pid = os.fork()
    if pid == 0:
        child(); os._exit(0)
    os.waitpid(pid, 0)
fork()  # before the first use: the child starts an engine of its own
print("first child ran", flush=True)
_native.call("sar_set_num_threads", 1)
fork()
_native.call("sar_set_num_threads", 1)
print("parent goes on", flush=True)
"""
    done = python(code)
    first, second = done.stdout.split("first child ran")
    assert first == "", first
    assert "spawn" in second and "forked" in second
    assert "parent goes on" in second, done.stderr


def test_wrong_abi_version_is_refused() -> None:
    code = "from sar._engine import library; library.ABI_VERSION = 99; library.call('sar_set_num_threads', 1)"
    done = python(code)
    here = f"version {signatures.ABI_VERSION} of the C interface"
    assert "ImportError" in done.stderr and here in done.stderr and "make build" in done.stderr


def test_errors_carry_their_parts_through_pickle() -> None:
    import pickle

    for e in (
        errors.PeerLostError("gone", 3, "host", "forward"),
        errors.RemoteError("boom", 1),
        errors.FormatError("bad", "graph.dgl", 12),
        errors.BudgetError("small", 4096),
        errors.DeadlineError("late", 2),
    ):
        again = pickle.loads(pickle.dumps(e))
        assert type(again) is type(e) and again.__dict__ == e.__dict__ and str(again) == str(e)
    assert issubclass(errors.RemoteError, errors.PeerLostError)
    assert issubclass(errors.DeadlineError, TimeoutError)
    assert issubclass(errors.FormatError, ValueError)


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from sar.distributed import initialize

    for text, threads in (("", 0), ("3", 3)):
        monkeypatch.setenv("SAR_NUM_THREADS", text)
        assert initialize._threads_from_environment() == threads
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("SAR_NUM_THREADS", text)
        with pytest.raises(ValueError, match=f"SAR_NUM_THREADS='{text}'"):
            initialize._threads_from_environment()
