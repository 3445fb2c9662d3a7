"""The table of functions that treat each edge by itself: what it allows gives the same rows, and the same gradients of
them, whatever the other rows are. Here rows are made up."""

from __future__ import annotations

import functools
import re
import warnings
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sar.graph.edge_tensor import calls, rowwise, tensor as edge_tensor
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.udf.batches import Batch
from sar.graph.udf.edge_function import EdgeFunction

E = 7
RELATION: Any = SimpleNamespace(num_edges=E)
EDGES: Any = SimpleNamespace(on_nodes=False)
RANDOM = {"dropout", "bernoulli", "poisson", "normal", "rand", "uniform", "exponential", "random_", "cauchy", "gumbel"}
RANDOM |= {"geometric", "rrelu", "multinomial", "empty", "randint"}


def numbers() -> dict[str, Tensor]:
    """Rows of edges: numbers ``x y c t q``, positive ``p``, integers ``i k``, ``b`` true or false."""
    return {key: value.clone() for key, value in made()[0].items()}


def shared() -> dict[str, Any]:
    """What all edges share: ``W v``, ``col`` numbers, ``mask``; and ``e``, a plain tensor with a row for each edge."""
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in made()[1].items()}


@functools.lru_cache(None)
def made() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Drawn once: seeding takes torch a millisecond."""
    torch.manual_seed(3)
    q = torch.randn(E, 4, 4, dtype=torch.float64)
    rows = {
        "x": torch.randn(E, 4, dtype=torch.float64),
        "y": torch.randn(E, 4, dtype=torch.float64),
        "p": torch.rand(E, 4, dtype=torch.float64) * 0.8 + 0.1,
        "c": torch.randn(E, dtype=torch.float64),
        "t": torch.randn(E, 3, 4, dtype=torch.float64),
        "q": q @ q.mT + torch.eye(4, dtype=torch.float64),
        "m": torch.randn(E, 2, 5, 5, dtype=torch.float64),
        "vol": torch.randn(E, 2, 3, 3, 3, dtype=torch.float64),
        "i": torch.randint(0, 4, (E, 4)),
        "k": torch.randint(0, 4, (E,)),
        "b": torch.rand(E, 4) > 0.5,
    }
    torch.manual_seed(4)
    r = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    return rows, {
        **{"W": r(5, 4), "v": r(4), "s": r(5), "M": r(4, 4), "B": r(2, 4, 4), "e": r(E, 4), "e3": r(E, 3, 4)},
        **{"one": r(1, 4), "K1": r(2, 3, 2), "K2": r(2, 2, 3, 3), "K3": r(2, 2, 2, 2, 2), "G": r(12, 4)},
        **{"L": r(16, 4)},
        **{"Kt1": r(3, 2, 2), "edges": torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)},
        **{"col": torch.tensor([2, 0]), "mask": torch.tensor([True, False, True, True]), "T": r(6, 3)},
        **{"torch": torch, "F": F, "E": E, "half": torch.float32},
    }


EXAMPLES = """
torch.sum(x, -1) | x.sum(dim=1, keepdim=True) | t.sum((1, 2)) | torch.nansum(x, 1) | x.prod(-1) | x.mean(-1)
x.nanmean(1) | x.std(-1) | torch.var(x, dim=1, unbiased=False) | torch.std_mean(x, 1) | torch.var_mean(x, 1)
x.median(-1) | x.nanmedian(1) | x.argmax(-1) | x.argmin(1) | (x > 0).all(-1) | torch.any(b, 1) | x.count_nonzero(1)
x.amax(-1) | x.amin(1) | x.max(-1) | torch.max(x, y) | torch.max(x, 1).values | x.min(-1)[0]
torch.aminmax(x, dim=1) | x.logsumexp(-1) | x.cumsum(-1) | x.cumprod(1) | x.cummax(1) | x.cummin(1)
x.logcumsumexp(1) | x.softmax(-1) | torch.log_softmax(x, 1) | F.softmin(x, dim=1) | F.softmax(t, dim=1)
torch.special.softmax(x, 1) | torch.special.log_softmax(x, 1) | i.mode(-1) | x.argsort() | x.sort(-1)
x.sort(dim=1, descending=True) | F.glu(x) | x.norm(dim=-1) | torch.norm(x, 2, -1, keepdim=True) | F.normalize(x)
F.normalize(t, dim=-1) | F.gumbel_softmax(x) | x.topk(2) | x.kthvalue(2) | x.quantile(0.3, -1)
x.nanquantile(0.3, 1) | x.diff() | F.cosine_similarity(x, y) | torch.cosine_similarity(x, v, dim=-1)
F.pairwise_distance(x, y) | torch.cdist(t, q) | torch.cross(t[:, :, :3], t[:, :, 1:], dim=-1)
torch.linalg.cross(x[:, :3], y[:, 1:]) | torch.linalg.vecdot(x, v) | torch.linalg.norm(x, dim=-1)
torch.linalg.vector_norm(x, 2, -1) | torch.linalg.matrix_norm(t) | q.det() | q.slogdet() | q.inverse()
torch.pinverse(q) | q.logdet() | torch.matrix_exp(q * 0.1) | torch.linalg.det(q) | torch.linalg.inv(q)
torch.linalg.slogdet(q) | torch.linalg.eigvalsh(q) | torch.linalg.svdvals(t) | torch.linalg.pinv(q)
torch.linalg.cholesky(q) | torch.linalg.solve(q, t.mT) | torch.linalg.qr(q)[1].abs() | torch.linalg.eigh(q)[0]
torch.fft.fft(x).real | torch.fft.ifft(x).real | torch.fft.rfft(x).real | torch.fft.irfft(torch.fft.rfft(x))
torch.fft.hfft(x) | torch.cat([x, y], -1) | torch.cat([x, e], 1) | torch.concat([t, t], dim=2)
torch.concatenate([x, y], 1) | torch.stack([x, e], 1) | torch.stack([x, y], -1) | x.unsqueeze(1) | x.unsqueeze(-1)
x.split(2, -1) | x.chunk(2, dim=1) | x.tensor_split(2, -1) | x.split_with_sizes([1, 3], 1)
torch.unsafe_split(x, 2, 1) | torch.unsafe_chunk(x, 2, 1) | x.unbind(1) | x.narrow(-1, 1, 2) | x.select(1, 2)
x.flip(-1) | t.flip(1, 2) | t.flip([1]) | x.roll(1, 1) | t.rot90(1, (1, 2)) | x.repeat_interleave(2, 1)
t.flatten(1) | x.unflatten(1, (2, 2)) | t.transpose(1, 2) | t.swapaxes(1, -1) | t.swapdims(2, 1) | t.movedim(1, 2)
t.moveaxis(-1, 1) | q.diagonal(dim1=1, dim2=2) | x.diag_embed() | q.tril() | q.triu(1) | t.mT | t.mH | t.adjoint()
x.unfold(1, 2, 1) | x.gather(1, i) | torch.gather(x, -1, i[:, :2]) | x.scatter(1, i, y) | x.scatter(1, i, 0.5)
x.scatter_add(1, i, y) | x.scatter_reduce(1, i, y, 'sum') | torch.take_along_dim(x, i, 1) | x.index_select(1, col)
x.index_add(1, col, y[:, :2]) | x.index_copy(1, col, y[:, :2]) | x.index_reduce(1, col, y[:, :2], 'amax')
x.index_fill(1, col, 0.5) | F.embedding(k, T) | torch.bucketize(x, edges) | torch.searchsorted(edges, x)
torch.isin(i, col) | F.linear(x, W, s) | F.linear(t, W) | F.bilinear(x, y, B) | F.prelu(x, v[:1])
torch.prelu(x, v) | F.layer_norm(x, (4,), v, v) | torch.layer_norm(t, (3, 4))
torch.native_layer_norm(x, (4,), None, None, 1e-5)[0] | F.rms_norm(x, (4,)) | F.group_norm(x, 2)
F.group_norm(t, 3) | F.batch_norm(x, v, v.abs(), v, v) | F.batch_norm(t, v[:3], v[:3].abs())
F.local_response_norm(t, 2) | F.conv1d(t, K1) | F.conv2d(m, K2) | F.conv3d(vol, K3) | F.conv_transpose1d(t, Kt1)
F.conv_transpose2d(m, K2) | F.conv_transpose3d(vol, K3) | torch.avg_pool1d(t, 2) | F.max_pool1d(t, 2)
torch.max_pool1d(t, 2) | F.adaptive_avg_pool1d(t, 2) | F.lp_pool1d(t, 2, 2) | F.adaptive_max_pool1d(t, 2)
F.avg_pool2d(m, 2) | torch.max_pool2d(m, 2) | F.adaptive_avg_pool2d(m, 2) | F.lp_pool2d(m, 2, 2)
F.max_pool2d(m, 2) | F.adaptive_max_pool2d(m, 2) | F.max_pool1d_with_indices(t, 2) | F.max_pool2d_with_indices(m, 2)
F.adaptive_max_pool1d_with_indices(t, 2) | F.adaptive_max_pool2d_with_indices(m, 2)
torch.adaptive_max_pool1d(t, 2) | F.interpolate(t, 8) | F.dropout(x) | F.dropout(x, 0.5, False) | F.alpha_dropout(x)
F.feature_alpha_dropout(x) | F.dropout1d(t) | F.dropout2d(m) | F.dropout3d(vol)
torch.feature_dropout(m, 0.5, True) | F.rrelu(x) | F.rrelu(x, training=True) | p.multinomial(2)
F.scaled_dot_product_attention(t, t, t) | F.scaled_dot_product_attention(t, q, q, M[:3])
torch.gru_cell(x, y, G, G) | torch.rnn_tanh_cell(x, y, M, M) | torch.rnn_relu_cell(x, e, M, M)
torch.lstm_cell(x, (y, e), L, L) | torch.bmm(t, q) | torch.bmm(e3, q) | torch.baddbmm(t, t, q)
torch.baddbmm(M[:3, :4], t, q) | torch.mm(x, M) | x.mv(v) | torch.addmm(v, x, M) | torch.outer(c, v) | c.ger(v)
x.view(-1, 2, 2) | t.view(E, -1) | t.reshape(E, 12) | torch.reshape(x, (-1, 4, 1)) | x.view(x.size(0), 2, 2)
x.view_as(y) | t.reshape_as(t) | x.unsqueeze(1).expand(-1, 3, -1) | x.unsqueeze(1).expand(E, 3, 4)
torch.broadcast_to(x[:, None], (E, 2, 4)) | v.expand_as(x) | x.repeat(1, 2) | x.tile(2) | x.tile(1, 2)
t.permute(0, 2, 1) | torch.permute(t, (0, 2, 1)) | c.t() | c.T | t[:, :1].squeeze(1) | t[:, :1].squeeze()
torch.squeeze(x[:, :1], -1) | x[:, 0] | x[..., 1:] | x[:, None] | x[:, col] | x[:, mask] | t[:, 0, 1]
t[..., None, 0] | t[:, [0, 2]] | T[k] | W[i] | put(x, (slice(None), 0), y[:, 1])
put(x, (slice(None), slice(2)), 0.5) | put(x, b, 0.0) | put(t, k > 1, v) | put(x, (..., 1), c) | x @ M | x @ v
t @ M | M @ q | t @ q | torch.matmul(e3, q) | torch.linalg.matmul(x, M) | M.__rmatmul__(x) | x.__matmul__(M)
B[0] @ t.mT | x[:, None] @ q | torch.einsum('ei,ej->eij', x, y) | torch.einsum('eij,jk->eik', t, M)
torch.einsum('ei,ei->e', x, e) | torch.einsum('e...,...->e...', x, v) | torch.einsum('...i,ij->...j', t, M)
torch.einsum('eij', t) | torch.einsum('ij,ej->ei', W, x) | torch.tensordot(t, M, 1)
torch.tensordot(t, M, ([2], [0])) | F.instance_norm(t)
F.instance_norm(t, v[:3], v[:3].abs(), use_input_stats=False) | x.to(half) | x.to(torch.float32, copy=True)
x.type(half) | x.type_as(T.float()) | x.to('cpu', half) | x.to(e.float()) | torch.where(x > 0, x, y)
x.where(b, torch.zeros((), dtype=x.dtype)) | torch.where(b, v, x) | F.one_hot(k, 5) | F.pad(x, (1, 2))
x.new_zeros(x.size(0), 3) | x.new_ones((x.shape[0], 2)) | x.new_full((x.size(0), 1), 2.0) | x.new_empty(x.shape)
F.mse_loss(x, y, reduction='none') | F.l1_loss(x, e, reduction='none') | F.smooth_l1_loss(x, y, reduction='none')
F.huber_loss(x, y, reduction='none') | F.poisson_nll_loss(x, y, reduction='none')
F.binary_cross_entropy(p, p, reduction='none') | F.binary_cross_entropy_with_logits(x, p, reduction='none')
F.kl_div(x, p, reduction='none') | F.cross_entropy(x, k, reduction='none') | F.nll_loss(x, k, reduction='none')
torch.addcmul(x, x, y) | torch.addcdiv(x, x, p) | torch.lerp(x, y, 0.3) | x.masked_fill(b, 0.5) | x + one | x * v
e - x | torch.add(x, y, alpha=2) | c * c | x / 2 | 2 ** x | x % 2 | p.pow(y) | torch.broadcast_tensors(x, v)
torch.zeros_like(x) | torch.full_like(x, 3) | x.clone().mul_(2) | x.clone().clamp_(0) | x.clone().zero_()
x.clone().copy_(y) | x.clone().masked_fill_(b, 0) | x.clone().add_(v) | x.clone().fill_(2.0) | x.data + 1
torch.normal(x, p) | torch.randint_like(x, 4) | x.clone().uniform_() | x.clone().normal_()
x.clone().exponential_() | x.clone().random_(3) | x.clone().log_normal_() | x.clone().cauchy_()
x.clone().geometric_(0.5) | torch.fft.fft(x).imag | x.clone().cumsum_(1) | x.clone().index_add_(1, col, y[:, :2])
x.clone().scatter_add_(1, i, y) | F.relu(x, inplace=True) | F.leaky_relu(x, 0.1, True) | F.threshold(x, 0.1, 0.0)
torch.polygamma(1, p) | torch.mvlgamma(p + 3, 2) | torch.clamp(x, v.clamp(max=0), v.clamp(min=1))
x.expand_as(t[:, 0]) | torch.ldexp(x, i)
"""
MIXED = """
x.sum() | x.sum(0) | x.mean((0, 1)) | x.std(True) | x.max() | x.softmax(0) | c.softmax(-1) | x.sort(0) | x.sort(-2)
x.cumsum(0) | x.norm() | F.normalize(x, dim=0) | F.softmax(x) | F.layer_norm(x, (7, 4))
F.batch_norm(x, v, v, training=True) | F.batch_norm(x, None, None, training=True) | F.instance_norm(t, v[:3], v[:3])
torch.cat([x, y]) | torch.cat([x, y], -2) | torch.stack([x, y]) | x.unsqueeze(0) | x.flip(0) | x.roll(1) | x.t()
x.T | t.transpose(0, 1) | t.permute(1, 0, 2) | x.view(-1) | x.view(4, 7) | x.reshape(2, -1) | x.flatten()
x.repeat(2, 1) | x.expand(3, 7, 4) | x[0] | x[1:] | x[::2] | x[b] | x[k > 1] | x[None] | x[[0, 1]] | x[:, k]
x[..., 0, 0] | t[:, [0], :, [1]] | put(x, 0, 1.0) | put(x, slice(1, 3), 1.0) | q @ x | c @ x
torch.einsum('ei,ej->ij', x, y) | torch.einsum('ei,fi->ef', x, y) | torch.einsum('ei->i', x)
torch.einsum('ei->ie', x) | F.linear(v, x) | F.linear(x, y) | torch.gather(x, 0, i) | x.scatter_add(0, i, y)
x.index_select(0, col) | x.index_add(0, col, y[:2]) | F.embedding(k, x) | F.embedding(k, T, max_norm=1.0)
F.one_hot(k) | x.unique() | torch.histc(x) | x.cov() | F.mse_loss(x, y) | F.cross_entropy(x, k) | x.chunk(2)
x.split(3) | x.unbind() | x.narrow(0, 0, 2) | x.select(0, 1) | x.squeeze(0) | x.repeat_interleave(2, 0)
x.repeat_interleave(k) | torch.where(x > 0) | x + torch.zeros(2, 7, 4) | torch.tensordot(x, y, ([0], [0]))
x.index_put((col,), v) | F.conv1d(x, K1[:, :1]) | torch.outer(v, c) | x.nonzero() | F.pad(t, (0, 0, 0, 0, 1, 1))
x.diff(dim=0)
"""


def each(text: str) -> Iterator[str]:
    for line in text.strip().splitlines():
        yield from line.split(" | ")


def element_by_element() -> Iterator[str]:
    """Calls of functions of one or two numbers that torch takes."""
    given: dict[str, Any] = {**numbers(), **shared()}
    for name in rowwise.POINTWISE:
        home, _, last = name.rpartition(".")
        owner = f"torch.{home}." if home not in ("", "Tensor") else ""
        calls = ["{0}({1})"] if owner else ["torch.{0}({1})", "F.{0}({1})", "x.{0}()", "p.{0}()", "i.{0}()"]
        calls += [] if owner else ["p.{0}(p)", "x.{0}(y)", "i.{0}(i)", "i.{0}(1)", "x.{0}"]
        calls += [] if owner else ["x.clone().{0}(y)", "i.clone().{0}(i)"]
        values = ["p", "x", "i", "p, p", "i, i", "x, y", "x, 1, 2"]
        for call in calls:
            for value in values if "{1}" in call else [""]:
                text = owner + call.format(last, value)
                try:
                    result = run(text, given)
                except Exception:
                    continue
                if isinstance(result, Tensor):
                    yield text
                    break


def put(x: Tensor, index: Any, value: Any) -> Tensor:
    x = x.clone()
    x[index] = value
    return x


def run(text: str, given: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {"put": put}, {k: v.clone() if isinstance(v, Tensor) else v for k, v in given.items()})


class Recorded(EdgeTensor):
    """No expression of the engine, so that every function is recorded."""

    in_engine = property(lambda self: False)


def lift(tensor: Tensor) -> EdgeTensor:
    return Recorded(RELATION, calls.rows("e", tensor), EDGES)


class Mixed(Exception):
    """A function wanted the values of all edges."""


@pytest.fixture(autouse=True)
def no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise Mixed(args[0])

    monkeypatch.setattr(edge_tensor, "_with_values", refuse)
    monkeypatch.setattr(edge_tensor, "warn_of_count", lambda what: None)


def flat(tree: Any) -> list[Any]:
    return [one for item in tree for one in flat(item)] if isinstance(tree, (tuple, list)) else [tree]


def recorded(text: str) -> list[EdgeTensor]:
    leaves = {k: t.requires_grad_(t.is_floating_point()) for k, t in numbers().items()}
    given: dict[str, Any] = {k: lift(t) for k, t in leaves.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flat(eval(text, {"put": put}, {**given, **shared()}))


def on_rows(results: list[EdgeTensor], rows: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Results of recorded calls on some rows, and the gradients of these rows."""
    function = EdgeFunction({str(n): t.by_rows() for n, t in enumerate(results)})
    columns = {slot: t.detach()[rows].requires_grad_(t.requires_grad) for slot, t in function.columns.items()}
    made = list(function(Batch(len(rows), {}, lambda side, name: columns[side, name], 0)).values())
    return made, gradients(made, [t for t in columns.values() if t.requires_grad])


def gradients(made: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    known = [t for t in made if t.requires_grad and t.is_floating_point()]
    if not known or not leaves:
        return []
    total = sum((t * torch.cos(torch.arange(t[0].numel())).view(t[0].shape)).sum() for t in known)
    try:
        return list(torch.autograd.grad(total, leaves, allow_unused=True))  # type: ignore[arg-type]
    except (RuntimeError, NotImplementedError) as error:
        assert "not implemented" in str(error)
        return []


OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3)
NOT_WITHOUT_DATA = ("x.kthvalue(2)", "F.rrelu(x)", "F.one_hot(k, 5)", "torch.poisson(p)")
"""Functions that torch before 2.3 cannot run on tensors without data."""


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry of the table, on all rows and on some, and what it is said to give: shape, dtype, gradient."""
    seen: set[str] = set()
    find = rowwise.find

    def noted(func: Any, *args: Any) -> Any:
        found = find(func, *args)
        if found is not None:
            seen.add(rowwise.table()[func][0])
        return found

    monkeypatch.setattr(rowwise, "find", noted)
    texts = [*each(EXAMPLES), *element_by_element()]
    wrong = []
    for text in texts:
        if OLD and text in NOT_WITHOUT_DATA:
            continue
        leaves = {k: t.requires_grad_(t.is_floating_point()) for k, t in numbers().items()}
        plain = {k: t.clone() for k, t in leaves.items()}
        try:
            torch.manual_seed(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole = flat(eval(text, {"put": put}, {**plain, **shared()}))
        except AttributeError:
            continue  # not in this version of torch
        except Exception as error:
            wrong.append(f"plainly: {text}: {error}"[:200])
            continue
        try:
            results = recorded(text)
            for one, truth in zip(results, whole, strict=True):
                assert isinstance(one, EdgeTensor), "values"
                assert one.dtype == truth.dtype and one.computation.shape == tuple(truth.shape[1:])
                assert one.requires_grad == truth.requires_grad
            names = text.replace("(", " ").replace(".", " ").split()
            is_random = any(word in name for name in names for word in RANDOM) and "False" not in text
            for rows in (list(range(E)), [3, 0, 6], [2]):
                made, grads = on_rows(results, rows)
                if is_random:
                    continue
                for one, truth in zip(made, whole, strict=True):
                    # torch may round the last of several single numbers otherwise than those before it
                    rtol, atol = (1e-6, 1e-6) if one.dtype == torch.float32 else (1e-9, 1e-11)
                    torch.testing.assert_close(one, truth[rows], rtol=rtol, atol=atol, equal_nan=True)
                if rows == list(range(E)):
                    full = grads
                for grad, of_all in zip(grads, full):
                    if grad is not None:
                        torch.testing.assert_close(grad, of_all[rows], rtol=1e-8, atol=1e-10, equal_nan=True)
        except Exception as error:
            wrong.append(f"{text}: {type(error).__name__}: {str(error)[:200]}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(texts)}", *wrong])
    called = set(re.findall(r"\w+", " ".join(texts)))  # torch may say add where a script says __add__
    missing = {name for name, _ in rowwise.table().values() if name.rpartition(".")[2] not in called} - seen
    assert not missing, f"no example of {sorted(missing)}"


@pytest.mark.parametrize("text", list(each(MIXED)))
def test_mixed(text: str) -> None:
    """What looks at several edges, or puts them elsewhere, is not allowed."""
    with pytest.raises(Mixed):
        results = recorded(text)
        assert not all(isinstance(t, EdgeTensor) for t in results), "recorded as row by row"
        raise Mixed


def test_nothing_is_written() -> None:
    """Tensors that all edges share are not there when shapes are found out: nothing can change them."""
    leaf = numbers()["x"].requires_grad_()
    v = torch.ones(4, dtype=torch.float64)
    x = lift(leaf)
    F.batch_norm(x, v, v)
    torch.addmm(v, x, torch.eye(4, dtype=torch.float64))
    assert v.tolist() == [1.0] * 4 and v._version == 0
    state = torch.get_rng_state()
    F.dropout(x)
    assert torch.equal(state, torch.get_rng_state())
