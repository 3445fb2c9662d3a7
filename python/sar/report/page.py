"""One page about a run: HTML with its pictures inside, without scripts and without anything from elsewhere."""

from __future__ import annotations

import time
from html import escape
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from sar.profiling.plan import Estimate
from sar.units import size

from .events import Epoch, Run, Worker
from .pictures import Line, bars, chart, matrix, short

PURPOSES = ("tensors", "structure", "features", "window", "scratch", "runtime")
"""Of memory, in the order of their colours."""
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --back: #fff; --soft: #ddd; --pale: #f5f5f5 }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --back: #181818; --soft: #444; --pale: #242424 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 1360px;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em; margin-bottom: 0 } h2 { margin-top: 2em; border-bottom: 1px solid var(--soft) }
.pictures { display: flex; flex-wrap: wrap; gap: 1.5em } figure { margin: 0; max-width: 100% }
figcaption { font-weight: 600; margin-bottom: .3em } svg { max-width: 100%; height: auto }
svg text { font-size: 11px; fill: var(--ink) } svg .grid { stroke: var(--soft) }
svg path { fill: none; stroke-width: 2; stroke-linecap: round }
.bar { display: flex; width: 640px; max-width: 100%; font-size: .8em; margin: .3em 0 } .bar b { width: 6em }
.bar span { margin-left: .5em } .matrix td { min-width: 1em; text-align: center }
table { border-collapse: collapse; margin: .5em 0 }
td, th { padding: .15em .8em; border-bottom: 1px solid var(--soft); text-align: right; vertical-align: top }
td:first-child, th:first-child { text-align: left }
td { overflow-wrap: anywhere }
thead th { background: var(--pale) } .wide { overflow-x: auto }
.legend { list-style: none; padding: 0; margin: .2em 0; font-size: .85em }
.legend { display: flex; flex-wrap: wrap; gap: .2em 1.2em }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; border-radius: 2px }
.note { background: var(--pale); border-left: 4px solid #d55e00; padding: .4em 1em; margin: .5em 0 }
"""


def page(run: Run, name: str, plan: Sequence[Estimate] = ()) -> str:
    """The page.

    :param name: of the run, for the title
    :param plan: what ``sar plan`` predicted, by rank; one entry where workers are equal
    """
    parts = [_head(run, name), *map(_note, _notes(run))]
    first = run.workers[0]
    if first.epochs:
        parts += [_section("Training", [_costs(run), _pictures(_values(first.epochs))])]
        parts += [_section("Memory", _memory(run, plan))]
        parts += [_section("Time", _time(run))]
        parts += [_section("Traffic", _traffic(run))]
    parts.append(_section("Settings", _settings(run)))
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # nothing that a log smuggles in could load or run, even if it were not escaped
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(name)} · SAR</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _head(run: Run, name: str) -> str:
    first = run.workers[0]
    begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(0.0, min(first.start["time"], 2.0**37))))
    epochs = len(first.epochs)
    took = f", {epochs} epochs in {_seconds(first.epochs[-1].seconds)}" if epochs else ""
    return f"<h1>{escape(name)}</h1>\n<p>{_plural(run.world, 'worker')}, begun {begun}{took}</p>"


def _notes(run: Run) -> List[str]:
    """What a reader should know before he believes the rest."""
    found = []
    if run.missing:
        found.append(f"No log of rank {_ranks(run.missing)}: what follows leaves them out.")
    for worker in run.workers:
        if worker.error:
            found.append(f"Rank {worker.rank} ended with an error: {worker.error}")
    cut = [w.rank for w in run.workers if w.cut_short]
    if cut:
        found.append(f"The log of rank {_ranks(cut)} ends within a line: the worker was stopped, or still runs.")
    counts = {len(w.epochs) for w in run.workers}
    if len(counts) > 1:
        found.append(f"Workers have logged {min(counts)} to {max(counts)} epochs.")
    if counts == {0}:
        found.append("No epoch was logged.")
    bad = [e.epoch for e in run.workers[0].epochs if None in _flat(e.values).values()]
    if bad:
        found.append(f"{_plural(len(bad), 'epoch')} with values that are not finite, the first is {bad[0]}.")
    return found


# ---- sections ------------------------------------------------------------------


def _values(epochs: Sequence[Epoch]) -> List[Tuple[str, str]]:
    """A picture for each value that the script logged."""
    names = list(dict.fromkeys(name for e in epochs for name in e.values))
    pictures = []
    for name in names:
        kinds = list(dict.fromkeys(key for e in epochs for key in _split(e.values.get(name), name)))
        lines = [Line(k, [(e.epoch, _split(e.values.get(name), name).get(k)) for e in epochs]) for k in kinds]
        pictures.append((name, chart(lines, name)))
    return pictures


def _split(value: Any, name: str) -> Dict[str, Optional[float]]:
    return value if isinstance(value, dict) else {name: value}


def _flat(values: Mapping[str, Any]) -> Dict[str, Optional[float]]:
    return {f"{n}/{k}": v for n, value in values.items() for k, v in _split(value, n).items()}


def _costs(run: Run) -> str:
    rows = []
    for worker in run.workers:
        last = worker.epochs[-1] if worker.epochs else None
        usual = sorted(e.took for e in worker.epochs)[len(worker.epochs) // 2] if last else 0.0
        peak = last.memory.get("resident", [0, 0])[1] if last else 0
        sent = sum(last.sent.values()) if last else 0
        rows.append([str(worker.rank), str(worker.start["host"]), _seconds(usual), size(peak), size(sent)])
    return _table(["rank", "host", "median epoch", "most resident memory", "sent"], rows)


def _memory(run: Run, plan: Sequence[Estimate]) -> List[str]:
    heaviest = max(run.workers, key=lambda w: _peak(w, "resident"))
    present = [p for p in PURPOSES if _peak(heaviest, p)]
    lines = [Line(p, [(e.epoch, float(e.memory.get(p, [0])[0])) for e in heaviest.epochs]) for p in present]
    together = [(e.epoch, float(sum(e.memory.get(p, [0, 0])[1] for p in PURPOSES))) for e in heaviest.epochs]
    lines.append(Line("the most so far, together", together))
    estimate = _estimate(plan, heaviest.rank)
    if estimate is not None:
        ends = [heaviest.epochs[0].epoch, heaviest.epochs[-1].epoch] if heaviest.epochs else []
        lines.append(Line("the peak that was planned", [(x, float(estimate.peak)) for x in ends], True))
    title = f"What rank {heaviest.rank}, the largest, holds at the end of each epoch"
    peaks = [(f"rank {w.rank}", [float(_peak(w, p)) for p in present]) for w in run.workers]
    pictures = [
        (title, chart(lines, title, size, from_zero=True, base=1024.0)),
        ("The most of each purpose, by rank", bars(peaks, present, size)),
    ]
    return [_pictures(pictures), _against(run, plan)]


def _against(run: Run, plan: Sequence[Estimate]) -> str:
    """Peaks and what was planned, in a table."""
    header = ["rank", *PURPOSES, "resident"]
    rows = []
    for worker in run.workers:
        rows.append([str(worker.rank), *(size(_peak(worker, p)) for p in (*PURPOSES, "resident"))])
        estimate = _estimate(plan, worker.rank)
        if estimate is not None:
            tensors = estimate.features + estimate.parameters + estimate.activations + estimate.scratch
            planned = {
                "tensors": tensors,
                "structure": estimate.structure,
                "window": estimate.window,
                "runtime": estimate.runtime,
                "resident": estimate.peak,
            }
            rows.append(["planned", *(size(planned[p]) if p in planned else "" for p in (*PURPOSES, "resident"))])
    text = "<p>The most that was held of each purpose. Resident memory is that of the process, with the interpreter "
    text += "and its libraries; a plan is of what comes beside them.</p>"
    return text + _table(header, rows)


def _estimate(plan: Sequence[Estimate], rank: int) -> Optional[Estimate]:
    if len(plan) == 1:
        return plan[0]
    return next((e for e in plan if e.rank == rank), None)


def _time(run: Run) -> List[str]:
    names = list(dict.fromkeys(name for w in run.workers for e in w.epochs for name in e.phases))
    rows = []
    for worker in run.workers:
        sums = [sum(e.phases.get(name, 0.0) for e in worker.epochs) for name in names]
        rest = max(0.0, sum(e.took for e in worker.epochs) - sum(sums))
        rows.append((f"rank {worker.rank}", [*sums, rest]))
    parts = [*names, "everything else"]
    pictures = [("Seconds by phase", bars(rows, parts, _seconds))]
    lines = [Line(f"rank {w.rank}", [(e.epoch, e.took) for e in w.epochs]) for w in run.workers[:8]]
    pictures.append(("Seconds of each epoch", chart(lines, "Seconds of each epoch", _seconds, from_zero=True)))
    table = []
    for worker in run.workers:
        last = worker.epochs[-1].operations if worker.epochs else {}
        for kind, (count, seconds, waited) in sorted(last.items(), key=lambda item: -item[1][1]):
            if count:
                table.append([str(worker.rank), kind, f"{count:.0f}", _seconds(seconds), _seconds(waited)])
    header = ["rank", "operation of the engine", "count", "time", "of it waiting for others"]
    return [_pictures(pictures), _table(header, table)]


def _traffic(run: Run) -> List[str]:
    if run.world == 1:
        return ["<p>One worker sends nothing.</p>"]
    shown = min(run.world, 256)
    sent = {w.rank: w.epochs[-1].sent for w in run.workers if w.epochs}
    cells: List[List[Optional[float]]] = [
        [float(sent[a].get(b, 0)) if a in sent else None for b in range(shown)] for a in range(shown)
    ]
    title = "Bytes sent over each link" + (f", of the first {shown} ranks" if shown < run.world else "")
    return [_pictures([(title, matrix(cells, size))])]


def _settings(run: Run) -> List[str]:
    first = run.workers[0]
    found = []
    for title, name in (("Of the script", "settings"), ("sar.Config", "config"), ("Environment", "environment")):
        if first.start[name]:
            rows = [[key, value] for key, value in first.start[name].items()]
            found.append(f"<h3>{title}</h3>" + _table(["name", "value"], rows))
    versions = first.start["versions"]
    found.append("<h3>Versions</h3>" + _table(["what", "version"], [[k, v] for k, v in versions.items()]))
    others = [w.rank for w in run.workers if w.start["versions"] != versions]
    if others:
        found.insert(0, _note(f"Rank {_ranks(others)} has other versions than rank {first.rank}."))
    return found


# ---- pieces --------------------------------------------------------------------


def _section(title: str, parts: Sequence[str]) -> str:
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(part for part in parts if part)


def _pictures(found: Sequence[Tuple[str, str]]) -> str:
    figures = "".join(f"<figure><figcaption>{escape(n)}</figcaption>{svg}</figure>" for n, svg in found if svg)
    return f'<div class="pictures">{figures}</div>' if figures else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _peak(worker: Worker, purpose: str) -> int:
    return max((e.memory.get(purpose, [0, 0])[1] for e in worker.epochs), default=0)


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _seconds(value: float) -> str:
    if value >= 60:
        return f"{value / 60:.1f} min"
    return f"{short(value)} s" if value >= 1 or value == 0 else f"{1000 * value:.3g} ms"
