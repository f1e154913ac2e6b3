"""Pictures of measurements as SVG text, without any library: bars, groups of bars, stacked bars and curves.

What is called ``scrapy-fleet...`` has a strong colour, everything else is grey; if nothing is ours, all have
colours. The pictures follow the reader's light or dark mode, and the same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 760
PAD = 24
LABELS = 250
"""The most that labels may take of the width; longer ones are broken into lines."""
LINE = 15
OURS = "scrapy-fleet"
COLOURS = ["#2563eb", "#0d9488", "#9333ea", "#d97706", "#db2777", "#65a30d"]
DARK_COLOURS = ["#60a5fa", "#2dd4bf", "#c084fc", "#fbbf24", "#f472b6", "#a3e635"]
GREYS = ["#8c959f", "#afb8c1", "#6e7781", "#c4ccd4"]
DARK_GREYS = ["#768390", "#545d68", "#9aa5b1", "#444c56"]
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


def _palette(colours: Sequence[str], greys: Sequence[str]) -> str:
    named = [(f"c{i}", each) for i, each in enumerate(colours)] + [(f"g{i}", g) for i, g in enumerate(greys)]
    return "".join(f".{name}{{fill:{each}}}.s{name}{{stroke:{each}}}" for name, each in named)


STYLE = (
    f"text{{font:13px {SANS};fill:#1f2328}}.t{{font-size:16px;font-weight:600}}.b{{font-weight:600}}"
    ".m{font-size:12px;fill:#59636e}.e{text-anchor:end}.mid{text-anchor:middle}"
    ".card{fill:#fff;stroke:#d1d9e0}.grid{stroke:#d1d9e0;stroke-opacity:.7}.axis{stroke:#8c959f}"
    ".curve{fill:none;stroke-width:2.25;stroke-linejoin:round}.lead{stroke-dasharray:1 3}"
    f".in{{font-size:12px;fill:#fff}}{_palette(COLOURS, GREYS)}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.m{fill:#9198a1}.card{fill:#0d1117;stroke:#3d444d}"
    f".grid{{stroke:#3d444d}}.axis{{stroke:#656c76}}.in{{fill:#0d1117}}{_palette(DARK_COLOURS, DARK_GREYS)}}}"
)


class Bar(NamedTuple):
    label: str
    value: float
    colour: str
    strong: bool


class Scale(NamedTuple):
    """From a value to a place between two ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, here = (
            (math.log10(each) if self.log else each) for each in (self.low, self.high, max(value, self.low))
        )
        return self.start + (self.end - self.start) * ((here - low) / (high - low) if high > low else 0.5)

    def ticks(self) -> list[float]:
        if not self.log:
            step = _step(self.high - self.low)
            first = math.ceil(self.low / step - 1e-9)
            return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for factors in ((1,), (1, 2, 5), range(1, 10)):  # closer ticks where there are few decades
            every = [f * 10.0**decade for decade in decades for f in factors]
            found = [each for each in every if self.low * 0.999 <= each <= self.high * 1.001]
            if len(found) > 2:
                break
        return found


class Canvas:
    """A card with a title; what is drawn goes downwards from ``y``."""

    def __init__(self, title: str, under: str) -> None:
        self.title, self.y = title, PAD + 14.0
        self.parts: list[str] = []
        self.behind: list[str] = []
        for line in wrap(title, WIDTH - 2 * PAD, 17.5):
            self.text(PAD, self.y, line, "t")
            self.y += 21
        for line in wrap(under, WIDTH - 2 * PAD, 12):
            self.text(PAD, self.y - 1, line, "m")
            self.y += LINE + 2
        self.y += 4

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        chosen = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{chosen}>{_clean(text)}</text>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str, round_by: float = 2) -> None:
        at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect {at} rx="{round_by:g}" class="{kind}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.behind.append(f'<line {at} class="{kind}"/>')

    def done(self, note: str, told: Iterable[str]) -> str:
        self.y += 6 if note else 0
        for line in wrap(note, WIDTH - 2 * PAD, 12):
            self.text(PAD, self.y + 8, line, "m")
            self.y += LINE + 1
        height = math.ceil(self.y + PAD - 8)
        head = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"'
        card = f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="card"/>'
        first = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head} aria-labelledby="title desc">',
            f'<title id="title">{_clean(self.title)}</title>',
            f'<desc id="desc">{_clean("; ".join(told))}</desc>',
            f"<style>{STYLE}</style>",
            card,
        ]
        return "\n".join([*first, *self.behind, *self.parts, "</svg>"]) + "\n"


def bars(
    title: str,
    rows: Sequence[tuple[str, float]],
    *,
    unit: str = "",
    best: str = "",
    note: str = "",
    log: bool = False,
) -> str:
    """Horizontal bars. ``best`` says which end is good: "higher", "lower", or other words as they are."""
    better = f"{best} is better" if best in ("higher", "lower") else best
    colours = _colours([label for label, _ in rows])
    found = [Bar(label, value, colours[label], label.startswith(OURS)) for label, value in rows]
    return _bars(title, {"": found}, unit, better, note, log)


def groups(
    title: str,
    series: Mapping[str, Mapping[str, float]],
    *,
    unit: str = "",
    note: str = "",
    log: bool = False,
) -> str:
    """Horizontal bars under headings: group -> side -> value; a side has its colour in every group."""
    colours = _colours(dict.fromkeys(side for sides in series.values() for side in sides))
    blocks = {
        group: [Bar(side, value, colours[side], side.startswith(OURS)) for side, value in sides.items()]
        for group, sides in series.items()
    }
    return _bars(title, blocks, unit, "", note, log)


def _bars(
    title: str, blocks: Mapping[str, Sequence[Bar]], unit: str, better: str, note: str, log: bool
) -> str:
    every = [_checked(bar.value) for rows in blocks.values() for bar in rows]
    above = [value for value in every if value > 0]
    high = max(above, default=1.0)
    low = 10.0 ** math.floor(math.log10(min(above, default=1.0) / 1.25)) if log else 0.0
    stuck = unit if unit in ("%", "x") else ""
    canvas = Canvas(title, ", ".join(each for each in (unit if not stuck else "", better) if each))
    column = _column([bar.label for rows in blocks.values() for bar in rows])
    room = max((width(show(value) + stuck, 14) for value in every), default=0.0)
    scale = Scale(low, high, PAD + column + 12, WIDTH - PAD - room - 8, log)
    thick, gap = (20, 9) if len(blocks) < 2 else (15, 5)
    top, told = canvas.y - 4, []
    for heading, rows in blocks.items():
        if heading:
            for line in wrap(heading, WIDTH - 2 * PAD, 14):
                canvas.text(PAD, canvas.y + 12, line, "b")
                canvas.y += LINE + 4
        for bar in rows:
            labels = wrap(bar.label, column, 14)
            tall = max(thick, LINE * len(labels))
            middle, strong = canvas.y + tall / 2, " b" if bar.strong else ""
            for i, line in enumerate(labels):
                canvas.text(
                    scale.start - 10, middle + 4.5 + LINE * (i - (len(labels) - 1) / 2), line, "e" + strong
                )
            long = max(scale.at(bar.value) - scale.start, 1.5) if bar.value else 0.0
            if long:
                canvas.bar(scale.start, middle - thick / 2, long, thick, bar.colour)
            canvas.text(scale.start + long + 6, middle + 4.5, show(bar.value) + stuck, strong.strip())
            told.append(f"{heading}{': ' if heading else ''}{bar.label}: {show(bar.value)} {unit}".strip())
            canvas.y += tall + gap
        canvas.y += 8 if len(blocks) > 1 else 0
    bottom = canvas.y - 2
    for each in scale.ticks() if log else ():
        canvas.line(scale.at(each), top, scale.at(each), bottom, "grid")
        canvas.text(scale.at(each), bottom + 15, tick(each), "m mid")
    canvas.line(scale.start, top, scale.start, bottom, "axis")
    canvas.y += 22 if log else 0
    return canvas.done(note, told)


def stacked(title: str, rows: Mapping[str, Mapping[str, float]], *, unit: str = "", note: str = "") -> str:
    """Horizontal bars made of parts: row -> part -> value, with the sum at the end."""
    canvas = Canvas(title, unit)
    parts = list(dict.fromkeys(part for each in rows.values() for part in each))
    colours = {part: f"c{i % len(COLOURS)}" for i, part in enumerate(parts)}
    x = float(PAD)
    for part in parts:  # a legend, since a narrow part has no room for its name
        if x > PAD and x + 18 + width(part, 12) > WIDTH - PAD:
            x, canvas.y = PAD, canvas.y + LINE + 4
        canvas.bar(x, canvas.y, 12, 12, colours[part])
        canvas.text(x + 17, canvas.y + 10, part, "m")
        x += 17 + width(part, 12) + 18
    canvas.y += 28
    sums = {row: sum(map(_checked, each.values())) for row, each in rows.items()}
    column = _column(rows)
    room = max((width(show(each), 14) for each in sums.values()), default=0.0)
    end = WIDTH - PAD - room - 8
    scale = Scale(0, max(sums.values(), default=1.0) or 1.0, PAD + column + 12, end, False)
    top, told = canvas.y - 4, []
    for row, each in rows.items():
        labels, strong = wrap(row, column, 14), "b" if row.startswith(OURS) else ""
        tall = max(26, LINE * len(labels))
        middle, done = canvas.y + tall / 2, 0.0
        for i, line in enumerate(labels):
            y = middle + 4.5 + LINE * (i - (len(labels) - 1) / 2)
            canvas.text(scale.start - 10, y, line, f"e {strong}".strip())
        for part, value in each.items():
            start, done = scale.at(done), done + value
            long = scale.at(done) - start
            if value:
                canvas.bar(start, middle - 13, max(long - 1, 0.5), 26, colours[part], 1)
            if width(show(value), 12) + 8 < long:
                canvas.text(start + long / 2, middle + 4, show(value), "in mid")
        canvas.text(scale.at(done) + 6, middle + 4.5, show(sums[row]), strong)
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
    step = _step(max(ys) or 1.0)
    high = 10.0 ** math.ceil(math.log10(max(ys)) - 1e-9) if log_y else step * math.ceil(max(ys) / step - 1e-9)
    low = 10.0 ** math.floor(math.log10(min(ys)) + 1e-9) if log_y else 0.0
    if low >= high:
        high = 10 * low if log_y else step
    top, bottom = canvas.y + 4, canvas.y + 4 + max(270, 2.4 * LINE * len(names))
    up = Scale(low, high, bottom, top, log_y)
    left = PAD + max(width(tick(each), 12) for each in up.ticks()) + 10
    column = min(190.0, max((width(name, 14) for name in names), default=0.0))
    right = WIDTH - PAD - column - 22
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
            canvas.parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" class="{colours[name]}"/>')
        ends[name] = points[-1]
    blocks = {name: wrap(name, column, 14) for name in names}
    places = _apart({name: (ends[name][1], LINE * len(blocks[name]) + 3) for name in names}, bottom)
    for name, middle in places.items():
        a, b = ends[name]
        canvas.line(a + 5, b, right + 16, middle, f"lead s{colours[name]}")
        for i, line in enumerate(blocks[name]):
            at = middle + 4.5 + LINE * (i - (len(blocks[name]) - 1) / 2)
            canvas.text(right + 20, at, line, "b" if name.startswith(OURS) else "")
    canvas.y = bottom + (44 if x else 26)
    told = [f"{name}: {', '.join(f'{tick(a)} {show(b)}' for a, b in sorted(series[name]))}" for name in names]
    return canvas.done(note, told)


def show(value: float) -> str:
    """A figure with about three digits."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) < 0.995:
        return f"{value:.2g}"
    text = f"{value:.{1 if abs(value) >= 9.995 else 2}f}"
    return text.rstrip("0").rstrip(".")


def tick(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if letter == "k" else 1):
            return show(value / size) + letter
    return show(value)


def width(text: str, size: float) -> float:
    """How wide a text is at most in the usual fonts, which nobody can know here."""
    total = 0.0
    for each in text:
        if each in " .,:;|!'`()[]ijlftrI/-":
            total += 0.4
        elif each in "mwMW@%" or ord(each) > 0x2E80:
            total += 1.0
        else:
            total += 0.74 if each.isupper() else 0.62
    return total * size


def wrap(text: str, room: float, size: float) -> list[str]:
    """Lines that fit; a word that is too long for a line is cut."""
    found: list[str] = []
    line = ""
    for word in text.split():
        while width(word, size) > room:
            kept = next(i for i in range(len(word), 0, -1) if i == 1 or width(word[:i], size) <= room)
            found += [*([line] if line else []), word[:kept]]
            line, word = "", word[kept:]
        longer = f"{line} {word}".strip()
        if line and width(longer, size) > room:
            found.append(line)
            longer = word
        line = longer
    return [*found, line] if line else found


def _colours(names: Iterable[str]) -> dict[str, str]:
    names = list(names)
    ours = [name for name in names if name.startswith(OURS)] or names
    greys = [name for name in names if name not in ours]
    return {
        **{name: f"c{i % len(COLOURS)}" for i, name in enumerate(ours)},
        **{name: f"g{i % len(GREYS)}" for i, name in enumerate(greys)},
    }


def _column(labels: Iterable[str]) -> float:
    return min(LABELS, max((width(label, 14) for label in labels), default=0.0))


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


def _step(span: float) -> float:
    """A round distance of ticks, about five of them."""
    rough = (span or 1.0) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    return next(f * size for f in (1, 2, 5, 10) if f * size >= rough * 0.999)


def _checked(value: float, above_zero: bool = False) -> float:
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        raise ValueError(f"This cannot be drawn{' on a logarithmic axis' * above_zero}: {value}")
    return value


def _clean(text: str) -> str:
    return escape("".join(each if each.isprintable() else " " for each in text))
