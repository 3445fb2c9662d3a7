"""Fused GAT layer with one linear map.

``out[i, h] = b[h] + sum over in-edges (j -> i) of a[ji, h] * W[h] x[j]``, with ``a`` the softmax over the in-edges of i
of ``leaky_relu(attn_l[h] . W[h] x[j] + attn_r[h] . W[h] x[i])``, and dropout of it.

Of the tensors of the size of the result, only the sum without b is saved for backward; W x is recomputed from x. The
sum is not the tensor that is returned, so scripts may change the result in place. The scores are computed as ``x .
(W[h]' attn[h])``, which is narrow, so neither pass multiplies all features with the attention vectors.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from sar._engine import programs as abi, session as _session
from sar.autograd import program
from sar.autograd.compile import uncompiled
from sar.autograd.once import differentiable_once
from sar.autograd.types import Agreed, Relation, anchor
from sar.distributed.agreement import agree, agreed_seed
from sar.graph.manager import GraphShardManager

from . import costs, gat_columns, lean
from .deferred import computed
from .eligibility import fits_alone, note_choice
from .recompute import Held, Saved, rows_of, save
from .row_blocks import products, sums


def fits(graph: Any, x: Any, fc: Any, attn_l: Tensor, attn_r: Tensor) -> bool:
    """Whether :func:`attend` may replace the layer's own steps. The answer is the same on all workers."""
    return fits_alone(graph, x, fc) and fc.bias is None and attn_l.dtype == attn_r.dtype == x.dtype


@uncompiled
def convolve(
    graph: Any,
    layer: Any,
    feat: Any,
    edge_weight: Any,
    get_attention: bool,
    slope: float,
    dropout_p: float,
    *,
    merge: Optional[str] = None,
    memory_efficient: bool = False,
) -> Optional[Tensor]:
    """The fused result of a GATConv, of DGL or of ``sar.nn``; None if the layer has to run its own steps, because it
    does not have exactly one linear map or because something reads the attention. ``slope`` and ``dropout_p`` as in
    :func:`attend`; ``merge`` as in :func:`gat_columns.merged`; ``memory_efficient``: by :mod:`.gat_columns`, and alike
    on all workers."""
    feat, vectors = computed(feat), (layer.attn_l, layer.attn_r)
    plain = edge_weight is None and not get_attention and layer.res_fc is None
    fused = plain and fits(graph, feat, getattr(layer, "fc", None), *vectors)
    by_columns, needs = memory_efficient and isinstance(graph, GraphShardManager), False
    if by_columns:
        tensors = feat, layer.fc.weight, *vectors, layer.bias
        mine = torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
        _, (unfit, needed) = agree(0, [int(not fused), int(mine)])
        fused, needs = not unfit, bool(needed)
    elif plain and lean.active():
        fused = lean.all_fit(fused)
    if not note_choice(layer, graph, fused):
        return None
    relation, x = graph._relation(None), layer.feat_drop(feat)
    if not by_columns:
        out = attend(relation, x, layer.fc, *vectors, layer.bias, slope, dropout_p)
        return finish(layer, out, merge)
    _, heads, each = layer.attn_l.shape
    step = costs.columns(x.shape[1], heads, each, merge)
    attention = gat_columns.Attention(relation, slope, step, dropout_p)
    inside = gat_columns.elementwise(layer.activation)  # on this rank; messages do not depend on it
    if inside:
        attention = attention._replace(activation=layer.activation, merge=merge)
    out = gat_columns.attend(attention, x, layer.fc.weight, *vectors, layer.bias, needs)
    return out if inside else finish(layer, out, merge)


def finish(layer: Any, out: Tensor, merge: Optional[str]) -> Tensor:
    """What follows the heads ``[..., h, d]``: the layer's activation, and how heads are merged."""
    return gat_columns.merged(out if layer.activation is None else layer.activation(out), merge)


def attend(
    relation: Relation,
    x: Tensor,
    fc: nn.Linear,
    attn_l: Tensor,
    attn_r: Tensor,
    bias: Optional[Tensor],
    slope: float,
    dropout_p: float,
) -> Tensor:
    """Collective in forward and backward.

    :param x: ``[n, i]``, of sources, which are the destinations too. :func:`fits` says whether it may be given
    :param fc: of weight ``[heads * each, i]``
    :param attn_l: of sources, ``[1, heads, each]``, and ``attn_r`` of destinations
    :param bias: ``[heads * each]``
    :param slope: of leaky_relu
    :param dropout_p: of the attention that is set to 0
    :returns: ``[n, heads, each]``
    """
    _session.current().follow_config()
    if lean.active() and dropout_p == 0:
        step, attn = lean.columns(x.shape[1], len(fc.weight)), torch.cat([attn_l, attn_r])
        return gat_columns.forward(gat_columns.Attention(relation, slope, step), x.contiguous(), fc.weight, attn, bias)
    seed = agreed_seed() if dropout_p > 0 else 0
    settings = (relation, slope, dropout_p, seed)
    agreed = Agreed()
    x = x.contiguous()
    out: Tensor = _Attend.apply(anchor(), x, fc.weight, attn_l, attn_r, settings, agreed, save(x))
    out = out if agreed.bits else out.detach()
    return out.clone() if bias is None else out + bias.view(out.shape[1:])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Tensor,
        attn_l: Tensor,
        attn_r: Tensor,
        settings: Tuple[Relation, float, float, int],
        agreed: Agreed,
        saved: Tuple[Saved, Optional[Held]],
    ) -> Tensor:
        relation, slope, dropout_p, seed = settings
        heads, each = attn_l.shape[1:]
        attn = torch.cat([attn_l, attn_r])
        folded = gat_columns.folded(weight, attn)
        constant = not ctx.needs_input_grad[1]  # then it may lie in a file
        scores, ft = products(x, folded, weight) if constant else (x.mm(folded.t()), x.mm(weight.t()))
        el, er = (s.unsqueeze(-1) for s in scores.view(len(x), 2, heads).transpose(0, 1).contiguous())
        ft = ft.view(len(x), heads, each)
        written = program.write(gat_columns.messages(el, er, ft, slope, dropout_p, seed), "sum")
        ctx.names = ["ft" if t is ft else "el" if t is el else "er" for t in (leaf.tensor for leaf in written.leaves)]
        _, for_x, for_w, for_l, for_r, *_ = ctx.needs_input_grad
        wants = {"ft": for_x or for_w, "el": for_x or for_w or for_l, "er": for_x or for_w or for_r}
        need = sum(1 << i for i, name in enumerate(ctx.names) if wants[name])
        compiled = program.compiled(written.text)
        call = program._Call(relation, compiled, written.seeds, (relation.num_dst, heads, each), need)
        state = [ft.new_empty(relation.num_dst, width) for width in compiled.softmaxes for _ in range(2)]
        out = ft.new_empty(call.shape)
        operands = [{"ft": ft, "el": el, "er": er}[name] for name in ctx.names]
        call.operation = abi.begin(True)
        call.agreed, ctx.saves = abi.program_forward(
            relation.handle, compiled.handle, call.make(), operands, state, out
        )
        agreed.bits = call.agreed
        ctx.call = call
        rows_saved, ctx.held = saved
        ctx.save_for_backward(*rows_saved, weight, attn, el, er, out if ctx.saves & abi.OUT_SAVED else None, *state)
        return out

    @staticmethod
    @differentiable_once("GATConv")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        source, columns, recipe, weight, attn, el, er, out, *state = ctx.saved_tensors
        x = rows_of(Saved(source, columns, recipe), ctx.held)
        _, for_x, for_w, for_l, for_r, *_ = ctx.needs_input_grad
        grads = _back(ctx, grad.contiguous(), x, weight, el, er, out, state)
        none = grad.new_zeros(el.shape)
        of_scores = torch.cat([grads.get(name, none) for name in ("el", "er")], 1).flatten(1)
        grad_ft = grads["ft"].flatten(1) if "ft" in grads else None
        grad_x = grad_w = None
        factors = [of_scores, grad_ft] if for_w and grad_ft is not None else [of_scores]
        of_folded, *of_ft = [f.t().mm(x) for f in factors] if for_x else sums(x, *factors)
        of_folded = of_folded.view(2, *attn.shape[1:2], -1)
        if of_ft:
            grad_w = of_ft[0]
            grad_w += torch.einsum("shd,shi->hdi", attn, of_folded).flatten(0, 1)
        del x
        if for_x and grad_ft is not None:
            grad_x = grad_ft.mm(weight)
            grad_x.addmm_(of_scores, gat_columns.folded(weight, attn))
        of_attn = torch.einsum("hdi,shi->shd", weight.view(*attn.shape[1:], -1), of_folded)
        return None, grad_x, grad_w, of_attn[:1] if for_l else None, of_attn[1:] if for_r else None, None, None, None


def _back(
    ctx: Any,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    el: Tensor,
    er: Tensor,
    out: Optional[Tensor],
    state: List[Tensor],
) -> Any:
    """Gradients of W x and of the scores, by name, where they are wanted."""
    call, nothing = ctx.call, grad.new_empty(0)
    at_hand = {"el": el, "er": er}
    if any(name == "ft" and ctx.saves >> i & 1 for i, name in enumerate(ctx.names)):
        at_hand["ft"] = (x.mm(weight.t()) if ctx.needs_input_grad[1] else products(x, weight)[0]).view(grad.shape)
    shapes = {"ft": grad.shape, "el": el.shape, "er": er.shape}
    operands = [at_hand[n] if ctx.saves >> i & 1 else nothing for i, n in enumerate(ctx.names)]
    grads = [grad.new_empty(shapes[n]) if call.need >> i & 1 else nothing for i, n in enumerate(ctx.names)]
    abi.program_backward(
        call.relation.handle,
        call.program.handle,
        call.make(),
        operands,
        state,
        nothing if out is None else out,
        grad,
        grads,
        call.operation,
    )
    return {n: g for i, (n, g) in enumerate(zip(ctx.names, grads)) if call.need >> i & 1}
