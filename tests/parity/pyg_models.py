"""Draws layers as users of PyG write them: the source of a ``MessagePassing`` class from a seed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.parity.pyg_messages import COLUMN, Draw

HEAD = '''"""Layers drawn at random."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import MessagePassing, aggr
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, remove_self_loops, scatter, softmax


def written(x):
    x = x.clone()
    x[:, 0] = x[:, -1] * 2
    return x


def views(x):
    x = 1 * x
    last, all_of_it = x[:, -1:], x.unsqueeze(-1)
    x[:, :1].mul_(2)
    all_of_it[:, :, 0].add_(0.5)
    last.neg_()
    x.detach()[:, 0].mul_(0.9)
    return x * last.detach() + all_of_it.squeeze(-1)


def masked(x):
    x = 1 * x
    x[x > 0.5] = 0.25
    return x
'''

ANY_FLOW = ["'sum'", "'mean'", "'add'", "aggr.SumAggregation()", "aggr.MeanAggregation()", "['sum', 'mean']"]
AGGREGATIONS = ["'max'", "'min'", "'mul'", "'std'", "'var'", "'median'", "'softmax'", "['mean', 'max', 'std']"]
AGGREGATIONS += ["aggr.SoftmaxAggregation(learn=True)", "aggr.SoftmaxAggregation(t=0.5, semi_grad=True)"]
AGGREGATIONS += ["aggr.QuantileAggregation(q=[0.25, 0.75])", "['min', aggr.SoftmaxAggregation(t=2.0)]"]
AGGREGATIONS += ["aggr.MultiAggregation(['sum', 'max', 'var'], mode='{mode}')", "aggr.StdAggregation(semi_grad=True)"]
AGGREGATIONS += [
    "aggr.MultiAggregation(['mean', 'min'], mode='proj', mode_kwargs=dict(in_channels={d}, out_channels=3))"
]
AGGREGATIONS += ["aggr.DegreeScalerAggregation(['mean', 'max'], ['identity', 'amplification', 'linear'], {degrees})"]
AGGREGATIONS += ["aggr.PowerMeanAggregation(learn=True)", "aggr.VarAggregation()"]
DEGREES = "torch.tensor([1, 4, 9, 6, 3, 2])"

HOOKS = [
    "model.register_message_forward_hook(lambda m, given, out: out * 1.5)",
    "model.register_message_forward_hook(lambda m, given, out: torch.tanh(out))",
    "model.register_message_forward_pre_hook("
    "lambda m, given: ({k: v * 0.5 if k[-2:] == '_j' else v for k, v in given[-1].items()},))",
    "model.register_aggregate_forward_pre_hook(lambda m, given: ({**given[-1]},))",
    "model.register_aggregate_forward_hook(lambda m, given, out: out + 1)",
    "model.register_propagate_forward_hook(lambda m, given, out: out.sigmoid())",
]


class Model(NamedTuple):
    """A layer, and the tensors that it is called with.

    :ivar name: of the class
    :ivar source: its definition, and ``hooks_<name>``
    :ivar inputs: by argument: "s" rows of sources, "t" of destinations, "e" of edges; and the shape of one row
    :ivar bipartite: edges go from nodes of one type to nodes of another
    """

    name: str
    source: str
    inputs: dict[str, tuple[str, tuple[int, ...]]]
    bipartite: bool


def draw(seed: int) -> Model:
    """The layer of a seed."""
    d = Draw(seed)
    name, bipartite = f"Layer{seed}", d.chance(0.3)
    flow = d.one(["source_to_target"] * 4 + ["target_to_source"])
    node_dim = d.one([0, -2])
    wide, other = (int(n) for n in d.rng.integers(1, 6, 2))
    inputs: dict[str, tuple[str, tuple[int, ...]]] = {"x": ("s", (wide,))}
    call, given, size = _nodes(d, bipartite, flow, inputs, wide, other)
    if not bipartite and d.chance(0.4):
        inputs["s"] = ("s", (1,))
        call["s"] = "s"
        given.update({key: 1 for key in d.one([["s_j"], ["s_i"], ["s_i", "s_j"]])})
    if d.chance(0.5):
        wide_edge = d.one([int(d.rng.integers(1, 4)), max(given.values())])
        inputs["edge_attr"], given["edge_attr"], call["edge_attr"] = ("e", (wide_edge,)), wide_edge, "edge_attr"
    first: list[str] = []
    if d.chance(0.3):
        inputs["w"], call["w"], given["w"] = ("e", ()), "w", 1
        first.append(d.one(COLUMN).format(a="w"))
    flipped = not bipartite and d.chance(0.1)
    forward, norm = _edges(d, bipartite, inputs, flow)
    d.norms = not any("remove" in line for line in forward) and d.chance(0.5)
    if flipped:
        forward.insert(0, d.one(["edge_index = edge_index.flip(0)", "edge_index = edge_index[[1, 0]]"]))
    at_sources = (flow == "target_to_source") != flipped  # which knows sums, means and softmaxes alone
    if norm:
        call["norm"], given["norm"] = "norm", 1
        first.append(d.one(COLUMN).format(a="norm"))
    edge_update: list[str] = []
    to_edges = f"{', '.join(f'{k}={v}' for k, v in call.items())}{size}"
    if d.chance(0.25):
        edge_update, width = _edge_update(d, given, first)
        forward.append(f"alpha = self.edge_updater(edge_index, {to_edges})")
        call["alpha"], given["alpha"] = "alpha", width
        to_edges = f"alpha=alpha, {to_edges}"
    plain, again = d.chance(0.4), not bipartite and d.chance(0.25)
    any_shape = plain and not again and node_dim == 0 and d.chance(0.25)
    if plain:
        lines, last, width = d.plain(given, "m", any_shape)
    else:
        lines, last, width = d.body(given, int(d.rng.integers(1, 8)), "m")
    aggregation = d.one(ANY_FLOW if at_sources or d.chance(0.6 if plain else 0.35) else AGGREGATIONS)
    if again and width != wide:
        lines.append(f"{last} = {d.module(f'nn.Linear({width}, {wide})')}({last})")
        width = wide
    if again or any_shape:  # the result is as wide as the input, or aggregations of matrices do not take it
        aggregation = d.one(ANY_FLOW[:5])
    if any(word in aggregation.lower() for word in ("std", "var")):
        # the square of a mean taken from a mean of squares: large messages that are equal leave their rounding alone
        lines.append(f"{last} = 2 * torch.tanh({last} / 2)")
    if "PowerMean" in aggregation:
        lines.append(f"{last} = F.softplus({last}) + 0.2")
    mode = d.one(["cat", "sum", "mean", "max", "min"])
    aggregation = aggregation.replace("{d}", str(width)).replace("{mode}", mode).replace("{degrees}", DEGREES)
    aggregate = [] if again or any_shape else _aggregate(d, at_sources)
    if d.chance(0.15):
        first += _counters(d, next(key for key in given if key.endswith("_j")))
    update = [] if any_shape else _update(d, bipartite, flow, call)
    propagate = f"self.propagate(edge_index, {to_edges})"
    if again:
        forward += ["for _ in range(2):", f"    x = torch.tanh({propagate})", "return x"]
    else:
        forward.append(f"return {propagate}")
    arguments = [*given, "index", "ptr", "size_i"]
    source = [f"class {name}(MessagePassing):", "    def __init__(self):"]
    source.append(f"        super().__init__(aggr={aggregation}, flow={flow!r}, node_dim={node_dim})")
    source += [f"        {line}" for line in d.made]
    source += [
        "",
        f"    def forward(self, edge_index, nodes, {', '.join(inputs)}):",
        *(f"        {x}" for x in forward),
    ]
    source += [*edge_update, "", f"    def message(self, {', '.join(arguments)}):"]
    source += [f"        {line}" for line in [*first, *lines, f"return {last}"]] + aggregate + update
    hooks = [d.one(HOOKS)] if d.chance(0.2) else ["pass"]
    source += ["", "", f"def hooks_{name}(model):", *(f"    {line}" for line in hooks), "", ""]
    return Model(name, "\n".join(source), inputs, bipartite)


def _nodes(
    d: Draw, bipartite: bool, flow: str, inputs: Any, wide: int, other: int
) -> tuple[dict[str, str], dict[str, int], str]:
    """Arguments of propagate, widths of those of messages, and the sizes. Sources have ``x``, destinations ``z``."""
    x_i = d.chance(0.7)
    if not bipartite:
        return {"x": "x"}, {"x_j": wide, **({"x_i": wide} if x_i else {})}, d.one([""] * 3 + [", size=(nodes, nodes)"])
    inputs["z"] = ("t", (other,))
    size = ", size=(len(x), len(z))"
    if flow == "source_to_target" and d.chance(0.6):
        return {"x": "(x, z)"}, {"x_j": wide, **({"x_i": other} if x_i else {})}, d.one(["", size])
    # PyG takes the sizes of a pair the other way round for the other flow: one tensor for each end
    if flow == "source_to_target":
        return {"x": "x", "z": "z"}, {"x_j": wide, **({"z_i": other} if x_i else {})}, size
    return {"x": "x", "z": "z"}, {"z_j": other, **({"x_i": wide} if x_i else {})}, size


def _edges(d: Draw, bipartite: bool, inputs: Any, flow: str) -> tuple[list[str], bool]:
    """What happens to the edges before messages are sent; whether there is a normalization."""
    if bipartite or d.chance(0.5):
        return [], False
    attr = next((name for name in ("edge_attr", "w") if name in inputs), "")
    both = "edge_attr" in inputs and "w" in inputs
    form = d.one(["degree", "gcn", "gcn", "gcn", "add", "remaining", "remove", "flip"])
    if form == "degree":
        end = d.one([0, 1])
        return [
            f"deg = degree(edge_index[{end}], nodes, dtype=x.dtype) + 1",
            "norm = deg.pow(-0.5)[edge_index[0]] * deg.pow(-0.5)[edge_index[1]]",
        ], True
    if form == "flip":
        return ["edge_index = edge_index.flip(0).flip(0)"], False
    if both:
        return [], False
    if form == "gcn" and attr != "edge_attr":
        loops = "add_self_loops=False, " if attr else d.one(["", "improved=True, "])
        given = f"edge_index, {attr or None}, nodes, {loops}flow={flow!r}, dtype=x.dtype"
        return [f"edge_index, norm = gcn_norm({given})"], True
    function = {"add": "add_self_loops", "remaining": "add_remaining_self_loops", "remove": "remove_self_loops"}
    last = ", num_nodes=nodes" if form != "remove" and form != "gcn" else ""
    if form == "gcn":
        return [], False
    if last and attr and d.chance(0.5):
        last += f", fill_value={d.one(['0.5', '1.0'] if form == 'remaining' else ['0.5', repr('mean'), repr('sum')])}"
    return [f"edge_index, {attr or '_'} = {function[form]}(edge_index, {attr or None}{last})"], False


def _edge_update(d: Draw, given: dict[str, int], first: list[str]) -> tuple[list[str], int]:
    if d.chance(0.4):
        lines, last, width = d.plain(given, "u", any_shape=False)
    else:
        lines, last, width = d.body(given, int(d.rng.integers(1, 4)), "u")
    head = ["", f"    def edge_update(self, {', '.join([*given, 'index', 'ptr', 'size_i'])}):"]
    return head + [f"        {line}" for line in [*first, *lines, f"return {last}"]], width


def _counters(d: Draw, key: str) -> list[str]:
    """What a message counts, in an attribute and in buffers. A worker adds up its own edges in ``sum_of_rows``."""
    d.made.append("self.calls = 0")
    d.made.append("self.register_buffer('seen', torch.tensor(0))")
    d.made.append("self.register_buffer('sum_of_rows', torch.zeros(1))")
    total = d.one(["self.sum_of_rows.add_({x}.sum())", "self.sum_of_rows[0] += {x}.sum()"])
    return ["self.calls += 1", "self.seen += 1", total.format(x=f"{key}.detach()")]


BY_HAND = ["out.index_add_(0, index, inputs)", "out.index_put_((index,), inputs, accumulate=True)"]
BY_HAND += [
    f"out.{function.format('index' + shape)}"
    for function in ("scatter_add_(0, {}, inputs)", "scatter_reduce_(0, {}, inputs, 'mean', include_self=False)")
    for shape in (".view(-1, 1).expand(-1, inputs.size(1))", "[:, None].expand_as(inputs)")
]


def _aggregate(d: Draw, at_sources: bool) -> list[str]:
    if d.chance(0.1):
        more = [] if at_sources else ["out.index_reduce_(0, index, inputs, 'amax', include_self=False)"]
        return [
            "",
            "    def aggregate(self, inputs, index, ptr, dim_size):",
            "        out = inputs.new_zeros(dim_size, inputs.size(-1))",
            f"        return {d.one(BY_HAND + more)}",
        ]
    if not d.chance(0.12):
        return []
    more = "scatter(inputs.sigmoid(), index, self.node_dim, dim_size, reduce='mean')"
    made = "self.aggr_module(inputs, index, ptr=ptr, dim_size=dim_size, dim=self.node_dim)"
    return [
        "",
        "    def aggregate(self, inputs, index, ptr, dim_size):",
        f"        return torch.cat([{made}, {more}], -1)",
    ]


UPDATES = ["out + {x}.sum(-1, keepdim=True)", "torch.relu(out) * {x}.mean(-1, keepdim=True)", "out"]
UPDATES += ["F.normalize(out, dim=-1, eps=1.0)", "torch.tanh(out) - {x}[:, :1]"]


def _update(d: Draw, bipartite: bool, flow: str, call: dict[str, str]) -> list[str]:
    if not d.chance(0.25):
        return []
    name = "z" if "z" in call and flow == "source_to_target" else "x"
    rows = "x[1]" if bipartite and "z" not in call else name
    return ["", f"    def update(self, out, {name}):", f"        return {d.one(UPDATES).format(x=rows)}"]
