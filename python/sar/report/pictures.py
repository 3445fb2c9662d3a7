"""Pictures for pages: curves as SVG, bars and matrices as boxes of HTML. Texts are escaped here."""

from __future__ import annotations

import math
from html import escape
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 10, 558, 214  # of the curves
_MOST_POINTS = 600
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#666666")
"""Told apart by people who see colours differently (Okabe and Ito)."""

Text = Callable[[float], str]


class Line(NamedTuple):
    """A curve: points, where None interrupts it."""

    name: str
    points: Sequence[Tuple[float, Optional[float]]]
    dashed: bool = False


def short(value: float) -> str:
    """A number for an axis."""
    return f"{value:.4g}"


def chart(lines: Sequence[Line], title: str, text: Text = short, from_zero: bool = False, base: float = 10.0) -> str:
    """Curves over epochs, with a legend. ``base``: of the units that ``text`` writes."""
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    if not known:
        return ""
    xs, ys = zip(*known)
    low, high, left, right = (0.0 if from_zero else min(ys)), max(ys), min(xs), max(xs)
    unit = base ** math.floor(math.log(max(abs(low), abs(high)), base)) if low or high else 1.0
    steps = [unit * y for y in ticks(low / unit, high / unit)]
    low, high = min(low, steps[0]), max(high, steps[-1])

    def at(x: float, y: float) -> Tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return _LEFT + across * _WIDTH, _TOP + (1 - up) * _HEIGHT

    title = escape(title)
    parts = [f'<svg viewBox="0 0 640 260" width="640" role="img" aria-label="{title}"><title>{title}</title>']
    for step in steps:
        y = at(left, step)[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text(step))}</text>')
    for x in ticks(left, right, least=1.0):
        if left <= x <= right:
            parts.append(f'<text x="{at(x, low)[0]:.1f}" y="240" text-anchor="middle">{short(x)}</text>')
    parts.append('<text x="355" y="256" text-anchor="middle">epoch</text>')
    for line, color in zip(lines, COLORS * len(lines)):
        points = line.points[:: max(1, len(line.points) // _MOST_POINTS)]
        path, pen = [], "M"
        for x, value in [*points, *line.points[-1:]]:
            if value is not None:
                path.append("{}{:.1f} {:.1f}".format(pen, *at(x, value)))
            pen = "M" if value is None else "L"
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        parts.append(f'<path d="{" ".join(path)}" stroke="{color}"{dash}><title>{escape(line.name)}</title></path>')
    return "".join(parts) + "</svg>" + legend([line.name for line in lines])


def bars(rows: Sequence[Tuple[str, Sequence[float]]], names: Sequence[str], text: Text = short) -> str:
    """A bar for each row, made of parts of different colours."""
    most = max((sum(values) for _, values in rows), default=0.0)
    if most <= 0:
        return ""
    parts = []
    for row, values in rows:
        parts.append(f'<div class="bar"><b>{escape(row)}</b>')
        for color, name, value in zip(COLORS * len(names), names, values):
            told = escape(f"{row}, {name}: {text(value)}")
            parts.append(f'<i style="background:{color};width:{70 * value / most:.2f}%" title="{told}"></i>')
        parts.append(f"<span>{escape(text(sum(values)))}</span></div>")
    return "".join(parts) + legend(names)


def matrix(values: Sequence[Sequence[Optional[float]]], text: Text = short) -> str:
    """A cell for each pair of ranks, the darker the larger; row: from, column: to."""
    most = max((v for row in values for v in row if v is not None), default=0.0) or 1.0
    parts = ["<tr><th>from \\ to</th>", *(f"<th>{b}</th>" for b in range(len(values))), "</tr>"]
    for a, row in enumerate(values):
        parts.append(f"<tr><th>{a}</th>")
        for b, value in enumerate(row):
            told = f"rank {a} to rank {b}: " + ("nothing known" if value is None else text(value))
            shown = escape(text(value)) if len(values) <= 12 and a != b and value is not None else ""
            share = (value or 0.0) / most
            style = f"background:rgba(0,114,178,{share:.3f})" + (";color:#fff" if share > 0.6 else "")
            parts.append(f'<td class="cell" style="{style}" title="{escape(told)}">{shown}</td>')
        parts.append("</tr>")
    return f'<table class="matrix">{"".join(parts)}</table>'


def legend(names: Sequence[str]) -> str:
    items = (f'<li><i style="background:{c}"></i>{escape(n)}</li>' for c, n in zip(COLORS * len(names), names))
    return f'<ul class="legend">{"".join(items)}</ul>'


def ticks(low: float, high: float, about: int = 5, least: float = 0.0) -> List[float]:
    """Round numbers from at or below ``low`` to at or above ``high``, ``least`` apart or more."""
    if not high > low:
        return [low]
    rough = max((high - low) / about, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]
