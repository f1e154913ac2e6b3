"""The page of the figures: ``python -m benchmarks.report`` renews ``docs/benchmarks.md`` and its pictures
from the newest full results (see ``benchmarks.kept``), without measuring anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import check, kept, pictures, speed
from benchmarks.measure import NOISY, ROOT, busy
from benchmarks.parts import PARTS

PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = "images/bench"
"""Beside the page."""
WHERE = ("cpu", "cores", "python", "scrapy", "scrapy-fleet")


def machine_line(run: kept.Run) -> str:
    found = run["machine"]
    return (
        f"Measured on {run['date']}: {found['cpu']}, {found['cores']} cores, {found['system']}, "
        f"{found['filesystem']}; Python {found['python']}, Scrapy {found['scrapy']}, "
        f"Twisted {found['twisted']}, queuelib {found['queuelib']}, SQLite {found['sqlite']}, "
        f"scrapy-fleet {found['scrapy-fleet']}. Load average before the start: {found['load']}."
    )


def measured(run: kept.Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that were measured, in our order."""
    return ((name, run["parts"][name]) for name in PARTS if name in run["parts"])


def at_home(run: kept.Run, entry: dict[str, Any]) -> bool:
    """Whether a part was measured where, and with what, the page says at its head."""
    there = entry["machine"] if "machine" in entry else run["machine"]
    return all(there[what] == run["machine"][what] for what in WHERE)


def gauges(run: kept.Run) -> list[speed.Gauge]:
    """How fast the machine was, around all parts that were measured on it."""
    return speed.all_of([entry for _, entry in measured(run) if at_home(run, entry)])


def warnings(run: kept.Run) -> list[str]:
    """Why these numbers should not be trusted much."""
    lines = []
    if busy(run["machine"]):
        lines.append(f"The machine was busy before the start (load average {run['machine']['load']}).")
    if changes := speed.told(gauges(run)):
        lines.append(f"The machine's speed changed meanwhile: {', '.join(changes)}.")
    crowded = [
        f"{name} ({entry['others']:.1f} cores)"
        for name, entry in measured(run)
        if (entry.get("others") or 0.0) > NOISY * run["machine"]["cores"]
    ]
    if crowded:
        lines.append(f"Others used the processors while these were measured: {', '.join(crowded)}.")
    return lines


def noise(run: kept.Run, name: str) -> list[str]:
    return PARTS[name].noise(run["parts"][name]["figures"])


def heading(run: kept.Run, name: str) -> str:
    """How a part was measured, and when."""
    entry = run["parts"][name]
    option = {"quick": " --quick", "short": " --short"}.get(entry["size"], "")
    when = entry["when"].replace("T", " ").replace("Z", " UTC")
    line = f"`python -m benchmarks.run{option} --parts {name}`, {when}"
    if entry.get("took"):
        line += f", {entry['took']:,.0f} s"
    if not at_home(run, entry):
        there = ", ".join(f"{what} {entry['machine'][what]}" for what in WHERE)
        return f"{line}; elsewhere: {there}."
    for kind, (low, high) in speed.shares(entry.get("speed", []), speed.best(gauges(run))).items():
        line += f"; the {kind} at {low:.0%} to {high:.0%}"
    return f"{line}."


def section(run: kept.Run, name: str, drawn: dict[str, str]) -> str:
    """What stands under the heading of a part: its command, tables, what spread, and pictures."""
    texts = [heading(run, name), PARTS[name].tables(run["parts"][name]["figures"])]
    if noisy := noise(run, name):
        texts.append(f"These spread by more than {NOISY:.0%}: {'; '.join(noisy)}.")
    texts += [f"![{_title(svg)}]({IMAGES}/{file})" for file, svg in drawn.items()]
    return "\n\n".join(texts)


def _title(svg: str) -> str:
    found = re.search(r"<title[^>]*>(.*?)</title>", svg, re.DOTALL)
    return " ".join(found[1].split()) if found else "figure"


def missed(found: list[check.Row]) -> str:
    """What falls short, and by how much."""
    short = [f"- {row.goal.show()}" for row in found if row.goal and row.missed]
    unknown = [f"- {row.what} (goal {row.asked}): `{row.command}`" for row in found if row.goal is None]
    texts = ["\n".join(short) if short else "Nothing that was measured."]
    if unknown:
        texts.append("Not measured:\n\n" + "\n".join(unknown))
    return "\n\n".join(texts)


def fill_in(page: str, parts: dict[str, str]) -> str:
    """Put each part between ``<!-- name -->`` and ``<!-- end of name -->``."""
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise SystemExit(f"The page has no place for the {name}: {begin} ... {end}")
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def renew(run: kept.Run, page: Path = PAGE) -> Path:
    """Fill the page, and draw its pictures and the README's; a part that was not measured stays as it is."""
    notes = "".join(f"\n\n**Note:** {line}" for line in warnings(run))
    found = check.rows(run)
    texts = {
        "machine": machine_line(run) + notes,
        "goals": f"{check.summary(found)}\n\n{check.shown(found)}",
        "missed": missed(found),
    }
    folder = page.parent / IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in measured(run):
        drawn = PARTS[name].plots(entry["figures"])
        for file, svg in drawn.items():
            (folder / file).write_text(svg, encoding="utf-8")
        texts[f"{name} table"] = section(run, name, drawn)
    pictures.keep(kept.figures(run), folder)
    page.write_text(fill_in(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
    return page


if __name__ == "__main__":
    print(f"Renewed {renew(kept.newest())}.")
