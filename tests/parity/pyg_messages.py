"""Draws what messages of random layers compute (:mod:`tests.parity.pyg_models`).

It is a list of lines, each of which makes a value from earlier ones. Values are known by name and by the shape that
one edge has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

UNARY = ["torch.tanh({a})", "{a}.sigmoid()", "F.relu({a})", "F.leaky_relu({a}, 0.2)", "F.elu({a})", "-{a}", "{a}.sin()"]
UNARY += ["F.softplus({a})", "{a}.abs()", "2 * {a} - 1", "{a}.clamp(-1, 1)", "torch.exp(torch.tanh({a}))", "{a} / 3"]
UNARY += ["({a}.abs() + 0.1).sqrt()", "{a}.clamp(min=0.1)", "1 / (1 + {a} ** 2)", "{a}.softmax(dim=-1)", "1 - {a}"]
UNARY += ["{a}.cumsum(-1)", "F.layer_norm({a}, ({d},))", "{a}.flip(-1)", "torch.where({a} > 0, {a}, {a} * 0.3)"]
UNARY += ["{a}.detach() * 0.5", "F.gelu({a})", "{a} / ({a}.square().sum(-1, keepdim=True) + 1)", "{a}.contiguous() + 0"]
UNARY += ["{a} - {a}.mean(dim=-1, keepdim=True)", "{a}.clone().mul_(0.7)", "F.silu({a})", "{a}.unsqueeze(1).squeeze(1)"]
UNARY += ["written({a})", "views({a})", "masked({a})", "F.relu({a} * 1, inplace=True)", "F.dropout({a}, 0.5, False)"]
SAME = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b}.abs() + 1)", "torch.maximum({a}, {b})", "{a}.mul({b})"]
SAME += ["torch.where({a} > {b}, {a}, 0.5 * {b})", "torch.lerp({a}, {b}, 0.3)", "torch.stack([{a}, {b}]).mean(0)"]
WIDE = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{b} * {a}", "{a} / ({b}.abs() + 1)"]
NARROW = ["{a}.sum(-1, keepdim=True)", "{a}.mean(dim=-1, keepdim=True)", "{a}[:, :1]", "{a}.amax(-1, keepdim=True)"]
NARROW += ["({a}.square().sum(-1, keepdim=True) + 0.1).sqrt()", "{a}.narrow(-1, 0, 1)", "{a}.prod(-1, keepdim=True)"]
COLUMN = ["{a} = {a}.view(-1, 1)", "{a} = {a}.unsqueeze(-1)", "{a} = {a}[:, None]", "{a} = {a}.reshape(-1, 1)"]
PLAIN = ["{a} * {b}", "{a} * {b}", "{a} * {b}", "{b} * {a}", "{b} * {a}", "({a}).mul({b})", "{a} + {b}", "{a} - {b}"]
PLAIN += ["{b} - {a}", "{a} / (1 + {b} * {b})", "{a} * ({b})"]
AROUND = ["2 * ({a})", "-({a})", "F.relu({a})", "1 - ({a})", "({a}) / 3"]


class Draw:
    """Draws one layer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.made: list[str] = []  # lines of __init__
        self.norms = False  # whether messages may have batch norm

    def one(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def module(self, text: str) -> str:
        name = f"self.p{len(self.made)}"
        self.made.append(f"{name} = {text}")
        return name

    def parameter(self, *shape: int) -> str:
        return self.module(f"nn.Parameter(torch.randn({', '.join(map(str, shape))}))")

    # ---- lines ---------------------------------------------------------------

    def line(self, known: dict[str, int]) -> tuple[str, int]:
        """A value made from known ones, whose widths are given, and its width."""
        a = list(known)[-1] if self.chance(0.5) else self.one(list(known))  # so that few lines are for nothing
        d = known[a]
        b = self.one([name for name in known if known[name] == d])
        thin = [name for name in known if known[name] == 1]
        kind = self.one(["unary", "unary", "same", "same", "wide", "linear", "cat", "narrow", "softmax", "more"])
        if kind == "same" and a != b:
            return self.one(SAME).format(a=a, b=b), d
        if kind == "wide" and thin:
            return self.one(WIDE).format(a=a, b=self.one(thin)), d
        if kind == "linear":
            if self.norms and self.chance(0.25):
                return f"{self.module(f'nn.BatchNorm1d({d})')}({a})", d
            return self.linear(a, d)
        if kind == "cat":
            other = self.one(list(known))
            return f"torch.cat([{a}, {other}], dim=-1)", d + known[other]
        if kind == "narrow":
            return self.one(NARROW).format(a=a), 1
        if kind == "softmax":
            if d > 2:
                a, d = f"({a} @ {self.parameter(d, 1)})", 1
            return self.one(
                ["softmax({a}, index, ptr, size_i)", "softmax(src={a}, index=index, num_nodes=size_i)"]
            ).format(a=a), d
        if kind == "more":
            return self.more(a, d, known)
        return self.one(UNARY).format(a=a, d=d), d

    def linear(self, a: str, d: int) -> tuple[str, int]:
        out = int(self.rng.integers(1, 6))
        form = self.one(["linear", "linear", "matmul", "bias", "scale", "mlp", "function"])
        if form == "bias":
            return f"{a} + {self.parameter(d)}", d
        if form == "scale":
            return f"{a} * {self.parameter(1, d)}", d
        if form == "matmul":
            return f"{a} @ {self.parameter(d, out)}", out
        if form == "function":
            return f"F.linear({a}, {self.parameter(out, d)}, {self.parameter(out)})", out
        if form == "mlp":
            wide = self.one([4] * 5 + [64, 256, 1024])
            made = f"nn.Sequential(nn.Linear({d}, {wide}), nn.Tanh(), nn.Linear({wide}, {out}))"
            return f"{self.module(made)}({a})", out
        return f"{self.module(f'nn.Linear({d}, {out}, bias={self.chance(0.5)})')}({a})", out

    def more(self, a: str, d: int, known: dict[str, int]) -> tuple[str, int]:
        """Heads, products of rows, and parts of rows."""
        b = self.one([name for name in known if known[name] == d])
        if d % 2 or self.chance(0.3):
            thin = self.one(list(known))
            if known[thin] * d <= 12:
                return f"torch.einsum('ei,ej->eij', {a}, {thin}).flatten(1)", d * known[thin]
            return f"{a}[:, 1:] if {d} > 2 else {a}", d - 1 if d > 2 else d
        half, scores = d // 2, f"({a} * {self.parameter(1, d)}).view(-1, 2, {d // 2}).sum(-1)"
        form = self.one(["heads", "heads", "dot", "chunk", "bmm"])
        if form == "heads":
            alpha = f"softmax({scores}, index, ptr, size_i)"
            return f"({b}.view(-1, 2, {half}) * {alpha}.unsqueeze(-1)).view(-1, {d})", d
        if form == "dot":
            return f"({a}.view(-1, 2, {half}) * {b}.view(-1, 2, {half})).sum(dim=-1)", 2
        if form == "chunk":
            return f"torch.mul(*{a}.chunk(2, dim=-1))", half
        return f"torch.bmm({a}.view(-1, 2, {half}), {b}.view(-1, {half}, 2)).reshape(-1, 4)", 4

    def plain(self, known: dict[str, int], prefix: str, any_shape: bool) -> tuple[list[str], str, int]:
        """A short product or sum of what is given, as most layers have; at times of heads.

        :param any_shape: the value of an edge may be a number, or have two dimensions: its width is 0 then
        """
        d = known[self.one(list(known))]
        wide, thin = ([name for name in known if known[name] == n] for n in (d, 1))
        heads, product = d % 2 == 0 and self.chance(0.4), self.chance(0.5)
        terms = [self.term(self.one(wide), known, d, heads, narrow=False, bare=product)]
        for _ in range(int(self.rng.integers(int(product), 4))):
            terms.append(self.term(self.one(wide + 2 * thin), known, d, heads, narrow=True, bare=product))
        self.rng.shuffle(terms)
        text = terms[0]
        for term in terms[1:]:
            form = self.one(PLAIN[:6] if product else PLAIN)
            text = form.format(a=text if self.chance(0.5) else f"({text})", b=term)
        if not product and self.chance(0.2):
            text = self.one(AROUND).format(a=text)
        last = f"{prefix}0"
        lines = [f"{last} = {text}"]
        if any_shape and (heads or self.chance(0.3)):
            return (lines if heads else [*lines, f"{last} = {last}.sum(-1)"]), last, 0
        if heads:
            lines.append(f"{last} = {last}.{self.one(['flatten(1)', f'view(-1, {d})', f'reshape(-1, {d})'])}")
        return lines, last, d

    def term(self, name: str, known: dict[str, int], d: int, heads: bool, narrow: bool, bare: bool) -> str:
        """What is given, or a softmax or a product of it, in the shape that ``d`` features have with two heads.

        :param narrow: it may have a single feature
        :param bare: nothing is computed from it
        """
        width, text = known[name], name
        form = "row" if bare else self.one(["row"] * 4 + ["softmax", "dot", "unary"])
        if form == "dot" and narrow:
            text = f"({name} * {self.one([other for other in known if known[other] == width])}).sum(-1, keepdim=True)"
            width = 1
        elif form == "softmax":
            text = f"softmax({name}, index, ptr, size_i)"
        elif form == "unary":
            text = self.one(["{a}.tanh()", "F.leaky_relu({a})", "(2 * {a})", "(1 - {a})"]).format(a=name)
        if not heads:
            return text
        return f"{text}.view(-1, 2, {d // 2})" if width == d else text + self.one([".unsqueeze(-1)", ".view(-1, 1, 1)"])

    def body(self, known: dict[str, int], lines: int, prefix: str) -> tuple[list[str], str, int]:
        known, made, last = dict(known), [], ""
        for n in range(lines):
            text, width = self.line(known)
            last = f"{prefix}{n}"
            made.append(f"{last} = {text}")
            if width > 12:
                made.append(f"{last} = {last}[:, :7]")
                width = 7
            known[last] = width
        return made, last, known[last]
