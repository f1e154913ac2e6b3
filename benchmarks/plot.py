"""Pictures of measurements as SVG text, without any library: bars, groups of bars, stacked bars and curves.

What is called ``scrapy-fleet...`` has a strong colour, everything else is grey; if nothing is ours, all have
colours. The pictures follow the reader's light or dark mode, and the same figures give the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.canvas import (
    COLOURS,
    GREYS,
    LINE,
    PAD,
    WIDTH,
    Canvas,
    Scale,
    show,
    step,
    tick,
    width,
    wrap,
)

OURS = "scrapy-fleet"
TINY = 0.005
"""A part that cannot be seen need not be named."""


class Bar(NamedTuple):
    label: str
    value: float
    colour: str
    strong: bool


def bars(
    title: str,
    rows: Sequence[tuple[str, float]],
    *,
    unit: str = "",
    best: str = "",
    note: str = "",
    log: bool = False,
    wide: int = WIDTH,
) -> str:
    """Horizontal bars. ``best`` says which end is good: "higher", "lower", or other words as they are."""
    better = f"{best} is better" if best in ("higher", "lower") else best
    ours = [label.startswith(OURS) for label, _ in rows]
    found = [
        Bar(label, value, "c0" if own or not any(ours) else "g0", own)
        for (label, value), own in zip(rows, ours, strict=True)
    ]
    return _bars(title, {"": found}, unit, better, note, log, wide)


def groups(
    title: str,
    series: Mapping[str, Mapping[str, float]],
    *,
    unit: str = "",
    note: str = "",
    log: bool = False,
    wide: int = WIDTH,
) -> str:
    """Horizontal bars under headings: group -> side -> value; a side has its colour in every group."""
    colours = _colours(dict.fromkeys(side for sides in series.values() for side in sides))
    blocks = {
        group: [Bar(side, value, colours[side], side.startswith(OURS)) for side, value in sides.items()]
        for group, sides in series.items()
    }
    return _bars(title, blocks, unit, "", note, log, wide)


def _bars(
    title: str,
    blocks: Mapping[str, Sequence[Bar]],
    unit: str,
    better: str,
    note: str,
    log: bool,
    wide: int,
) -> str:
    every = [_checked(bar.value) for rows in blocks.values() for bar in rows]
    above = [value for value in every if value > 0]
    high = max(above, default=1.0)
    low = 10.0 ** math.floor(math.log10(min(above, default=1.0) / 1.25)) if log else 0.0
    stuck = unit if unit in ("%", "x") else ""
    under = ("" if stuck else unit, "logarithmic scale" * log, better)
    canvas = Canvas(title, ", ".join(each for each in under if each), wide)
    column = canvas.column([bar.label for rows in blocks.values() for bar in rows])
    room = max((width(show(value) + stuck, 14) for value in every), default=0.0)
    scale = Scale(low, high, PAD + column + 12, canvas.right - room - 8, log)
    thick, gap = (20, 9) if len(blocks) < 2 else (15, 5)
    ticks, told = scale.ticks() if log else [], []
    for heading, rows in blocks.items():
        if heading:
            for line in wrap(heading, canvas.right - PAD, 14):
                canvas.text(PAD, canvas.y + 12, line, "b")
                canvas.y += LINE + 4
        top = canvas.y - gap / 2
        for bar in rows:
            labels = wrap(bar.label, column, 14)
            tall = max(thick, LINE * len(labels))
            middle, strong = canvas.y + tall / 2, " b" if bar.strong else ""
            canvas.texts(scale.start - 10, middle, labels, "e" + strong)
            long = max(scale.at(bar.value) - scale.start, 1.5) if bar.value else 0.0
            if long:
                canvas.bar(scale.start, middle - thick / 2, long, thick, bar.colour)
            canvas.text(scale.start + long + 6, middle + 4.5, show(bar.value) + stuck, strong.strip())
            told.append(f"{heading}{': ' if heading else ''}{bar.label}: {show(bar.value)} {unit}".strip())
            canvas.y += tall + gap
        for each in ticks:
            canvas.line(scale.at(each), top, scale.at(each), canvas.y - gap / 2, "grid")
        canvas.line(scale.start, top, scale.start, canvas.y - gap / 2, "axis")
        canvas.y += 8 if len(blocks) > 1 else 0
    for each in ticks:
        canvas.text(scale.at(each), canvas.y + 11, tick(each), "m mid")
    canvas.y += 18 if log else 0
    return canvas.done(note, told)


def stacked(title: str, rows: Mapping[str, Mapping[str, float]], *, unit: str = "", note: str = "") -> str:
    """Horizontal bars made of parts: row -> part -> value, with the sum at the end."""
    canvas = Canvas(title, unit)
    parts = list(dict.fromkeys(part for each in rows.values() for part in each))
    colours = dict(zip(parts, itertools.cycle(["c0", "c1", "c3", "g0", "g1", "g2"]), strict=False))
    x = float(PAD)
    for part in parts:  # a legend, since a narrow part has no room for its name
        if all(each.get(part, 0.0) <= TINY * sum(each.values()) for each in rows.values()):
            continue
        name, *more = wrap(part, canvas.right / 2, 12)
        name += "..." if more else ""
        if x > PAD and x + 17 + width(name, 12) > canvas.right:
            x, canvas.y = PAD, canvas.y + LINE + 4
        canvas.bar(x, canvas.y, 12, 12, colours[part])
        canvas.text(x + 17, canvas.y + 10, name, "m")
        x += 17 + width(name, 12) + 14
    canvas.y += 28
    sums = {row: sum(map(_checked, each.values())) for row, each in rows.items()}
    column = canvas.column(rows)
    highest = max(sums.values(), default=1.0) or 1.0
    digits = max(0, min(2, 2 - math.floor(math.log10(highest))))

    def shown(value: float) -> str:  # what is added up has the same digits
        return f"{value:,.{digits}f}"

    room = max((width(shown(each), 14) for each in sums.values()), default=0.0)
    end = canvas.right - room - 8
    scale = Scale(0, highest, PAD + column + 12, end, False)
    top, told = canvas.y - 4, []
    for row, each in rows.items():
        labels, strong = wrap(row, column, 14), "b" if row.startswith(OURS) else ""
        tall = max(26, LINE * len(labels))
        middle, done = canvas.y + tall / 2, 0.0
        canvas.texts(scale.start - 10, middle, labels, f"e {strong}".strip())
        for part, value in each.items():
            start, done = scale.at(done), done + value
            long = scale.at(done) - start
            if value:
                canvas.bar(start, middle - 13, max(long - 1, 0.5), 26, colours[part], 1)
            if width(shown(value), 12) + 6 < long:
                kind = "in mid" if colours[part] < "g" else "mid small"
                canvas.text(start + long / 2, middle + 4, shown(value), kind)
        canvas.text(scale.at(done) + 6, middle + 4.5, shown(sums[row]), strong)
        told.append(f"{row}: {', '.join(f'{part} {show(value)}' for part, value in each.items())} {unit}")
        canvas.y += tall + 10
    canvas.line(scale.start, top, scale.start, canvas.y - 6, "axis")
    return canvas.done(note, told)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
    note: str = "",
) -> str:
    """Curves, each with its name at its end. On a logarithmic axis every figure must be above zero."""
    canvas = Canvas(title, y)
    names = [name for name, points in series.items() if points]
    xs = [_checked(point[0], log_x) for name in names for point in series[name]] or [1.0]
    ys = [_checked(point[1], log_y) for name in names for point in series[name]] or [1.0]
    apart = step(max(ys) or 1.0)
    high = (
        10.0 ** math.ceil(math.log10(max(ys)) - 1e-9) if log_y else apart * math.ceil(max(ys) / apart - 1e-9)
    )
    low = 10.0 ** math.floor(math.log10(min(ys)) + 1e-9) if log_y else 0.0
    if low >= high:
        high = 10 * low if log_y else apart
    top, bottom = canvas.y + 4, canvas.y + 4 + max(270, 2.4 * LINE * len(names))
    up = Scale(low, high, bottom, top, log_y)
    left = PAD + max(width(tick(each), 12) for each in up.ticks()) + 10
    column = min(190.0, max((width(name, 14) for name in names), default=0.0))
    right = canvas.right - column - 32
    across = Scale(min(xs), max(xs), left + 8, right, log_x)
    for each in up.ticks():
        canvas.line(left, up.at(each), right + 8, up.at(each), "axis" if each == low else "grid")
        canvas.text(left - 8, up.at(each) + 4, tick(each), "m e")
    for each in across.ticks():
        canvas.line(across.at(each), bottom, across.at(each), bottom + 5, "axis")
        canvas.text(across.at(each), bottom + 19, tick(each), "m mid")
    canvas.text((left + right) / 2, bottom + 38, x, "m mid")
    colours = _colours(names)
    ends = {}
    for name in sorted(names, key=lambda each: each.startswith(OURS)):  # ours above the others
        points = [(across.at(a), up.at(b)) for a, b in sorted(series[name])]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        canvas.parts.append(f'<polyline points="{path}" class="curve s{colours[name]}"/>')
        for a, b in points:
            canvas.dot(a, b, 3.2, colours[name])
        ends[name] = points[-1]
    blocks = {name: wrap(name, column, 14) for name in names}
    places = _apart({name: (ends[name][1], LINE * len(blocks[name]) + 3) for name in names}, bottom)
    for name, middle in places.items():
        a, b = ends[name]
        canvas.line(a + 5, b, right + 18, middle, f"lead s{colours[name]}")
        canvas.dot(right + 22, middle, 4.5, colours[name])
        canvas.texts(right + 31, middle, blocks[name], "b" if name.startswith(OURS) else "")
    canvas.y = bottom + (44 if x else 26)
    told = [f"{name}: {', '.join(f'{tick(a)} {show(b)}' for a, b in sorted(series[name]))}" for name in names]
    return canvas.done(note, told)


def _colours(names: Iterable[str]) -> dict[str, str]:
    names = list(names)
    ours = [name for name in names if name.startswith(OURS)] or names
    greys = [name for name in names if name not in ours]
    return {
        **{name: f"c{i % len(COLOURS)}" for i, name in enumerate(ours)},
        **{name: f"g{i % len(GREYS)}" for i, name in enumerate(greys)},
    }


def _apart(wanted: Mapping[str, tuple[float, float]], bottom: float) -> dict[str, float]:
    """Places for labels near where they want to be (their middles and heights), without overlaps."""
    places: dict[str, float] = {}
    floor = 0.0
    for name, (middle, tall) in sorted(wanted.items(), key=lambda each: each[1]):
        places[name] = max(middle, floor + tall / 2)
        floor = places[name] + tall / 2
    ceiling = bottom + 10
    for name in reversed(places):
        tall = wanted[name][1]
        places[name] = min(places[name], ceiling - tall / 2)
        ceiling = places[name] - tall / 2
    return places


def _checked(value: float, above_zero: bool = False) -> float:
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        raise ValueError(f"This cannot be drawn{' on a logarithmic axis' * above_zero}: {value}")
    return value
