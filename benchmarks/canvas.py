"""What pictures are drawn with: a card with a title, scales, and texts whose width is guessed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 760
PAD = 20
LABELS = 0.36
"""The most that labels may take of the width; longer ones are broken into lines."""
LINE = 15
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
    f".small{{font-size:12px}}.in{{font-size:12px;fill:#fff}}{_palette(COLOURS, GREYS)}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.m{fill:#9198a1}.card{fill:#0d1117;stroke:#3d444d}"
    f".grid{{stroke:#3d444d}}.axis{{stroke:#656c76}}.in{{fill:#0d1117}}{_palette(DARK_COLOURS, DARK_GREYS)}}}"
)


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
            apart = step(self.high - self.low)
            first = math.ceil(self.low / apart - 1e-9)
            return [i * apart for i in range(first, math.floor(self.high / apart + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for factors in ((1,), (1, 2, 5), (1, 2, 3, 5, 7)):  # closer ticks where there are few decades
            every = [f * 10.0**decade for decade in decades for f in factors]
            found = [each for each in every if self.low * 0.999 <= each <= self.high * 1.001]
            if len(found) > 2:
                break
        return found[:: math.ceil(len(found) / 7) or 1]


class Canvas:
    """A card with a title; what is drawn goes downwards from ``y``."""

    def __init__(self, title: str, under: str, wide: int = WIDTH) -> None:
        self.title, self.wide, self.right, self.y = title, wide, wide - PAD, PAD + 14.0
        self.parts: list[str] = []
        self.behind: list[str] = []
        for line in wrap(title, wide - 2 * PAD, 17):
            self.text(PAD, self.y, line, "t")
            self.y += 21
        for line in wrap(under, wide - 2 * PAD, 12):
            self.text(PAD, self.y - 1, line, "m")
            self.y += LINE + 2
        self.y += 4

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        if not text:
            return
        chosen = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{chosen}>{clean(text)}</text>')

    def texts(self, x: float, middle: float, lines: Sequence[str], kind: str) -> None:
        """Lines around a height."""
        for i, line in enumerate(lines):
            self.text(x, middle + 4.5 + LINE * (i - (len(lines) - 1) / 2), line, kind)

    def bar(self, x: float, y: float, width: float, height: float, kind: str, round_by: float = 2) -> None:
        at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect {at} rx="{round_by:g}" class="{kind}"/>')

    def dot(self, x: float, y: float, radius: float, kind: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.behind.append(f'<line {at} class="{kind}"/>')

    def column(self, labels: Iterable[str]) -> float:
        """How wide the labels before the bars are."""
        return min(LABELS * self.wide, max((width(label, 14) for label in labels), default=0.0))

    def done(self, note: str, told: Iterable[str]) -> str:
        self.y += 6 if note else 0
        for line in wrap(note, self.wide - 2 * PAD, 12):
            self.text(PAD, self.y + 8, line, "m")
            self.y += LINE + 1
        height = math.ceil(self.y + PAD - 8)
        wide = self.wide
        head = f'viewBox="0 0 {wide} {height}" width="{wide}" height="{height}" role="img"'
        card = f'<rect x=".5" y=".5" width="{wide - 1}" height="{height - 1}" rx="8" class="card"/>'
        first = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head} aria-labelledby="title desc">',
            f'<title id="title">{clean(self.title)}</title>',
            f'<desc id="desc">{clean("; ".join(told))}</desc>',
            f"<style>{STYLE}</style>",
            card,
        ]
        return "\n".join([*first, *self.behind, *self.parts, "</svg>"]) + "\n"


def show(value: float) -> str:
    """A figure with about three digits."""
    if value == round(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) < 0.995:
        return f"{value:.2g}"
    return f"{value:.{1 if abs(value) >= 9.995 else 2}f}"


def tick(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
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


def step(span: float) -> float:
    """A round distance of ticks, about five of them."""
    rough = (span or 1.0) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    return next(f * size for f in (1, 2, 5, 10) if f * size >= rough * 0.999)


def clean(text: str) -> str:
    """As XML, without the marks of Markdown's code."""
    return escape("".join(each if each.isprintable() else " " for each in text.replace("`", "")))
