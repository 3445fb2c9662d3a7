"""Which functions of torch treat each edge by itself, that is, row by row of their edge tensors.

A table: for each function, its arguments in order and what must hold of them. A function that it does not list, or
arguments that it does not allow, may look at several edges.
"""

from __future__ import annotations

import ast
import functools
import inspect
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import rowwise_rules as rules
from .rowwise_rules import Arguments, dims_of


def _words(text: str) -> List[str]:
    return text.split()


POINTWISE = _words("""
abs absolute acos arccos acosh arccosh add addcdiv addcmul angle asin arcsin asinh arcsinh atan arctan atanh arctanh
atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift ceil celu clamp clip
clamp_min clamp_max clone conj conj_physical contiguous copysign cos cosh deg2rad detach digamma div divide true_divide
double elu empty_like eq erf erfc erfinv exp exp2 expm1 expand_as fix float float_power floor floor_divide fmax fmin
fmod frac full_like gcd ge gelu greater greater_equal gt half bfloat16 hardshrink hardsigmoid hardswish hardtanh
heaviside hypot i0 igamma igammac int isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu lerp
less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
logsigmoid long lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative nextafter not_equal
ones_like polygamma positive pow rad2deg real reciprocal relu relu6 remainder round rsqrt rsub selu sgn short bool char
byte sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink
threshold trunc xlogy zeros_like broadcast_tensors Tensor.data Tensor.imag
__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__ __rdiv__ __floordiv__ __rfloordiv__
__mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __abs__ __invert__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__
__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __lshift__ __rshift__
__iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__
__ilshift__ __irshift__ zero_ fill_ copy_ bernoulli poisson normal rand_like randn_like randint_like normal_ uniform_
exponential_ random_ log_normal_ cauchy_ geometric_
special.expit special.entr special.erfcx special.log_ndtr special.ndtr special.ndtri special.xlog1py special.zeta
""")
"""Element by element, tensors broadcast against each other. Those of edges have as many dimensions as the result, so
that edges stay in the first."""

ALONG = """
sum nansum prod mean nanmean std var std_mean var_mean median nanmedian argmax argmin all any count_nonzero: input dim
amax amin max min aminmax logsumexp cumsum cumprod cummax cummin logcumsumexp softmax log_softmax softmin: input dim
mode argsort sort glu special.softmax special.log_softmax: input dim=-1
norm: input p='fro' dim
normalize: input p=2.0 dim=1
gumbel_softmax: logits tau=1 hard=False eps=1e-10 dim=-1
topk kthvalue: input k dim=-1
quantile nanquantile: input q dim
diff: input n=1 dim=-1 prepend append
cosine_similarity: x1 x2 dim=1
pairwise_distance: x1 x2 >=2
cdist: x1 x2 >=3
cross: input other dim
linalg.cross linalg.vecdot: input other dim=-1
linalg.norm: input ord dim
linalg.vector_norm: input ord=2 dim
linalg.matrix_norm: input ord='fro' dim=(-2,-1)
det slogdet inverse pinverse logdet matrix_exp linalg.det linalg.inv linalg.slogdet linalg.qr: input >=3
linalg.eigh linalg.eigvalsh linalg.svdvals linalg.pinv linalg.cholesky: input >=3
linalg.solve: input other ==3
fft.fft fft.ifft fft.rfft fft.irfft fft.hfft: input n dim=-1
"""
"""A dimension at a time, which may not be that of edges. A line has names of functions and of their arguments in order;
a default where there is one. ``dim``, ``dims`` and so on may not be 0. Tensors are rows of edges, or broadcast; with a
star behind the name they are the same for all edges; with an exclamation mark the argument may not be set. ``>=2``: the
least number of dimensions; ``+1``: dimensions are counted in the result, which has one more.
"""

SHAPES = """
cat concat concatenate: tensors dim=0
stack: tensors dim=0 +1
unsqueeze: input dim +1
split chunk tensor_split split_with_sizes unsafe_split unsafe_chunk: input sections dim=0
unbind: input dim=0
narrow: input dim start length
select: input dim index
flip: input *dims
roll: input shifts dims
rot90: input k=1 dims=(0,1)
repeat_interleave: input repeats* dim
flatten: input start_dim=0
unflatten: input dim sizes
transpose swapaxes swapdims: input dim0 dim1
movedim moveaxis: input source destination
diagonal: input offset=0 dim1=0 dim2=1
diag_embed: input offset=0 dim1=-2 dim2=-1 +1
tril triu: input >=3
mT mH adjoint matrix_H: input >=3
Tensor.unfold: input dimension size step
"""
"""The same of functions that give a tensor of another shape."""

BY_INDEX = """
gather: input dim index
scatter scatter_add scatter_reduce: input dim index src
take_along_dim: input indices dim
index_select: input dim index*
index_add index_copy index_reduce: input dim index* source
index_fill: input dim index* value
F.embedding: input weight* padding_idx max_norm! norm_type scale_grad_by_freq! sparse!
bucketize: input boundaries*
searchsorted: sorted_sequence* input
isin: elements test_elements*
"""

LAYERS = """
linear: input weight* bias* >=2
bilinear: input1 input2 weight* bias* >=2
prelu: input weight*
layer_norm rms_norm native_layer_norm: input normalized_shape weight* bias*
group_norm: input num_groups weight* bias* >=2
F.batch_norm: input running_mean* running_var* weight* bias* training! >=2
local_response_norm: input >=3
conv1d: input weight* bias* ==3
conv2d: input weight* bias* ==4
conv3d: input weight* bias* ==5
conv_transpose1d: input weight* bias* ==3
conv_transpose2d: input weight* bias* ==4
conv_transpose3d: input weight* bias* ==5
avg_pool1d max_pool1d adaptive_avg_pool1d adaptive_max_pool1d lp_pool1d: input >=2
avg_pool2d max_pool2d adaptive_avg_pool2d adaptive_max_pool2d lp_pool2d: input >=3
max_pool1d_with_indices F.adaptive_max_pool1d_with_indices: input >=2
max_pool2d_with_indices F.adaptive_max_pool2d_with_indices: input >=3
interpolate: input >=3
dropout alpha_dropout feature_alpha_dropout: input p=0.5 training=True
dropout1d dropout2d dropout3d feature_dropout: input p=0.5 training=True >=3
rrelu: input lower upper training=False
multinomial: input ==2
scaled_dot_product_attention: query key value attn_mask dropout_p=0.0 >=3
gru_cell rnn_tanh_cell rnn_relu_cell: input hx w_ih* w_hh* b_ih* b_hh* ==2
lstm_cell: input hx w_ih* w_hh* b_ih* b_hh* ==2
bmm: input mat2 ==3
baddbmm: input batch1 batch2 ==3
mm: input mat2* ==2
mv: input vec* ==2
addmm: input mat1 mat2* ==2
outer ger: input vec2* ==1
"""

SPECIAL: Dict[str, Callable[[Arguments], bool]] = {
    **dict.fromkeys(("view", "reshape"), rules.view),
    **dict.fromkeys(("expand", "broadcast_to"), rules.expand),
    **dict.fromkeys(("repeat", "tile"), rules.repeat),
    "view_as": rules.like_another,
    "reshape_as": rules.like_another,
    "permute": rules.permute,
    **dict.fromkeys(("t", "T"), rules.one_dimension),
    "squeeze": rules.squeeze,
    "__getitem__": rules.getitem,
    "__setitem__": rules.setitem,
    **dict.fromkeys(("matmul", "__matmul__", "linalg.matmul"), rules.matmul),
    "__rmatmul__": rules.matmul,
    "einsum": rules.einsum,
    "tensordot": rules.tensordot,
    "F.instance_norm": rules.instance_norm,
    **dict.fromkeys(("to", "type", "type_as"), rules.cast),
    "where": rules.where,
    "one_hot": rules.one_hot,
    "pad": rules.pad,
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), rules.new),
    **dict.fromkeys([f"F.{name}_loss" for name in ("mse", "l1", "smooth_l1", "huber", "poisson_nll")], rules.loss),
    **dict.fromkeys(("F.binary_cross_entropy", "F.binary_cross_entropy_with_logits", "F.kl_div"), rules.loss),
    **dict.fromkeys(("F.cross_entropy", "F.nll_loss"), rules.loss),
}
"""Functions with rules of their own."""


class Entry(NamedTuple):
    """A line of the table. ``dims``: arguments that name dimensions; ``shared``: tensors that are the same for all
    edges; ``unset``: arguments that must not be set; ``more``: added to the number of dimensions."""

    names: Tuple[str, ...]
    defaults: Dict[str, Any]
    dims: Tuple[str, ...]
    shared: Tuple[str, ...]
    unset: Tuple[str, ...]
    least: int
    exact: int
    more: int

    def allows(self, call: Arguments) -> bool:
        """Whether a call works row by row."""
        given = call.named(self.names)
        unset, shared = ([given.pop(name, None) for name in names] for names in (self.unset, self.shared))
        if any(unset) or call.has_edges(shared):
            return False
        operands = list(given.values())
        n = call.broadcast(operands)
        if n < max(self.least, 1) or (self.exact and n != self.exact):
            return False
        for name in self.dims:
            value = given.get(name, self.defaults.get(name))
            if isinstance(value, Tensor):  # the larger of two tensors
                continue
            dims = dims_of(value, n + self.more)
            if not dims or 0 in dims:
                return False
        shape = given.get("normalized_shape", ())
        return not isinstance(shape, (tuple, list)) or len(shape) < n


DIMS = frozenset(_words("dim dims dim0 dim1 dim2 source destination start_dim dimension"))


def _entry(words: Sequence[str]) -> Entry:
    names: List[str] = []
    defaults: Dict[str, Any] = {}
    found: Dict[str, List[str]] = {"*": [], "!": []}
    least = exact = more = 0
    for word in words:
        if word[:2] == ">=":
            least = int(word[2:])
        elif word[:2] == "==":
            exact = int(word[2:])
        elif word == "+1":
            more = 1
        else:
            name, _, default = word.partition("=")
            bare = name.rstrip("*!")
            names.append(bare)
            found.get(name[-1], []).append(bare)
            if default:
                defaults[bare] = ast.literal_eval(default)
    # the source of index_add is a tensor, that of movedim a dimension
    dims = tuple(name for name in names if name.lstrip("*") in DIMS and not (name == "source" and "index" in names))
    bare_dims = tuple(d.lstrip("*") for d in dims)
    return Entry(tuple(names), defaults, bare_dims, tuple(found["*"]), tuple(found["!"]), least, exact, more)


def _lines() -> Iterator[Tuple[str, Callable[[Arguments], bool], bool]]:
    """Names, their rules, and whether there are functions in place that give the same shape."""
    for name in POINTWISE:
        yield name, rules.pointwise, True
    for table, in_place in ((ALONG, True), (SHAPES, False), (BY_INDEX, True), (LAYERS, True)):
        for line in filter(None, table.splitlines()):
            names, _, words = line.partition(":")
            entry = _entry(words.split())
            for name in names.split():
                yield name, entry.allows, in_place
    for name, rule in SPECIAL.items():
        yield name, rule, False


@functools.cache
def table() -> Dict[Any, Tuple[str, Callable[[Arguments], bool]]]:
    """Names and rules by function: of torch, of tensors, and of :mod:`torch.nn.functional`."""
    found: Dict[Any, Tuple[str, Callable[[Arguments], bool]]] = {}
    for name, rule, in_place in _lines():
        for suffix in ("", "_") if in_place and not name.endswith("_") else ("",):
            for function in _named(name + suffix):
                found[function] = (name, rule)
    return found


def _named(name: str) -> Iterator[Any]:
    home, _, last = name.rpartition(".")
    homes = {"": (torch, Tensor, F, torch.special), "F": (F,), "Tensor": (Tensor,)}
    for owner in homes.get(home) or (getattr(torch, home),):
        function = getattr(owner, last, None)
        if callable(function):
            yield function
        elif owner is Tensor and function is not None:  # a property
            yield function.__get__


def known(func: Any) -> bool:
    """Whether the table lists a function."""
    return func in table()


def name_of(func: Any) -> str:
    """The name under which the table lists a function, or nothing."""
    listed = table().get(func)
    return "" if listed is None else listed[0]


MOVES = frozenset(_words("cat concat concatenate stack unsqueeze broadcast_to expand __setitem__"))
"""Functions that put rows elsewhere, and none together."""


def mixes(func: Any, args: Sequence[Any]) -> bool:
    """Whether a function of the table mixes rows of edges, or picks some by where they stand, if they are not in the
    places that it allows."""
    name, rule = table()[func]
    if name == "__getitem__":
        return not any(map(rules.is_mask, args[1] if isinstance(args[1], tuple) else args[1:]))
    return name not in MOVES and rule not in (rules.pointwise, rules.where)


def find(func: Any, args: Sequence[Any], kwargs: Dict[str, Any], edges: int) -> Optional[Arguments]:
    """What is known of a call that treats each edge by itself; None where it may not.

    :param edges: how many this worker has
    """
    listed = table().get(func)
    if listed is None:
        return None
    call = Arguments(listed[0], func, list(args), dict(kwargs), edges)
    with torch._C.DisableTorchFunctionSubclass():
        return call if listed[1](call) else None


@functools.cache
def inplace_argument(func: Any) -> Optional[int]:
    """The place of the argument ``inplace`` of a function; None where it has none."""
    if not inspect.isfunction(func):
        return None
    names = func.__code__.co_varnames[: func.__code__.co_argcount]
    return names.index("inplace") if "inplace" in names else None
