"""Pictures for pages, as SVG text. Texts are escaped here."""

from __future__ import annotations

import math
from html import escape
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 10, 36
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


def chart(
    lines: Sequence[Line], title: str, x_name: str, text: Text = short, from_zero: bool = False, base: float = 10.0
) -> str:
    """Curves over numbers that are whole, with a legend. ``base``: of the units that ``text`` writes."""
    xs = [x for line in lines for x, y in line.points if y is not None]
    ys = [y for line in lines for _, y in line.points if y is not None]
    if not xs:
        return ""
    low, high = (0.0 if from_zero else min(ys)), max(ys)
    unit = base ** math.floor(math.log(max(abs(low), abs(high)), base)) if low or high else 1.0
    steps = [unit * y for y in ticks(low / unit, high / unit)]
    low, high = min(low, steps[0]), max(high, steps[-1])
    left, right = min(xs), max(xs)

    def at(x: float, y: float) -> Tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    parts = [_open(title, HEIGHT)]
    for y in steps:
        _, py = at(left, y)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py:.1f}" y2="{py:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{escape(text(y))}</text>')
    for x in ticks(left, right, least=1.0):
        px, _ = at(x, low)
        if left <= x <= right:
            parts.append(f'<text x="{px:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{short(x)}</text>')
    parts.append(f'<text x="{(WIDTH + _LEFT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_name)}</text>')
    for number, line in enumerate(lines):
        parts.append(_curve(line, COLORS[number % len(COLORS)], at))
    return "".join(parts) + "</svg>" + legend([line.name for line in lines])


def _curve(line: Line, color: str, at: Callable[[float, float], Tuple[float, float]]) -> str:
    points = line.points[:: max(1, len(line.points) // _MOST_POINTS)]
    if line.points and points[-1] != line.points[-1]:
        points = [*points, line.points[-1]]
    path, pen = [], "M"
    for x, y in points:
        if y is None:
            pen = "M"
            continue
        px, py = at(x, y)
        path.append(f"{pen}{px:.1f} {py:.1f}")
        pen = "L"
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    drawn = f'<path d="{" ".join(path)}" fill="none" stroke="{color}" stroke-width="2"{dash}>'
    dots = ""
    if len(path) < 40 and not line.dashed:
        dots = "".join(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{color}"/>'
            for px, py in (at(x, y) for x, y in points if y is not None)
        )
    return f"{drawn}<title>{escape(line.name)}</title></path>{dots}"


def bars(rows: Sequence[Tuple[str, Sequence[float]]], names: Sequence[str], title: str, text: Text = short) -> str:
    """A bar for each row, made of parts of different colours."""
    most = max((sum(values) for _, values in rows), default=0.0)
    if most <= 0:
        return ""
    height = 22 * len(rows) + 8
    parts = [_open(title, height)]
    for number, (name, values) in enumerate(rows):
        y, x = 4 + 22 * number, float(_LEFT + 20)
        parts.append(f'<text x="{x - 6}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        for color, part, value in zip(_endless(), names, values):
            width = value / most * (WIDTH - _LEFT - 20 - 90)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="16" fill="{color}">'
                f"<title>{escape(f'{name}, {part}: {text(value)}')}</title></rect>"
            )
            x += width
        parts.append(f'<text x="{x + 5:.1f}" y="{y + 13}">{escape(text(sum(values)))}</text>')
    return "".join(parts) + "</svg>" + legend(names)


def matrix(values: Sequence[Sequence[Optional[float]]], title: str, text: Text = short) -> str:
    """A square for each pair, the darker the larger; row: from, column: to."""
    count = len(values)
    most = max((v for row in values for v in row if v is not None), default=0.0)
    cell = max(4.0, min(64.0, 560.0 / max(1, count)))
    left, top = 60.0, 34.0
    numbered = cell >= 44
    every = max(1, math.ceil(16 / cell))
    size = cell * count
    parts = [_open(title, int(top + size + 6), int(left + size + 12))]
    parts.append(f'<text x="{left + size / 2:.1f}" y="12" text-anchor="middle">to rank</text>')
    parts.append(f'<text x="4" y="{top + size / 2:.1f}">from</text>')
    for a in range(0, count, every):
        middle = a * cell + cell / 2
        parts.append(f'<text x="{left + middle:.1f}" y="{top - 6:.1f}" text-anchor="middle">{a}</text>')
        parts.append(f'<text x="{left - 6:.1f}" y="{top + middle + 4:.1f}" text-anchor="end">{a}</text>')
    for a, row in enumerate(values):
        for b, value in enumerate(row):
            share = 0.0 if value is None or most <= 0 else value / most
            x, y = left + b * cell, top + a * cell
            told = f"rank {a} to rank {b}: " + ("nothing known" if value is None else text(value))
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}" fill="{COLORS[0]}" '
                f'fill-opacity="{share:.3f}" class="cell"><title>{escape(told)}</title></rect>'
            )
            if numbered and a != b and value is not None:
                kind = "small light" if share > 0.6 else "small"
                at = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}"'
                parts.append(f'<text {at} text-anchor="middle" class="{kind}">{escape(text(value))}</text>')
    return "".join(parts) + "</svg>"


def legend(names: Sequence[str]) -> str:
    items = (f'<li><i style="background:{c}"></i>{escape(n)}</li>' for c, n in zip(_endless(), names))
    return f'<ul class="legend">{"".join(items)}</ul>'


def _endless() -> List[str]:
    return list(COLORS) * 16


def _open(title: str, height: int, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>"
    )


def ticks(low: float, high: float, about: int = 5, least: float = 0.0) -> List[float]:
    """Round numbers from at or below ``low`` to at or above ``high``, ``least`` apart or more."""
    if not high > low:
        return [low]
    rough = max((high - low) / about, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]
