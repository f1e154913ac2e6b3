"""What a run found, kept: a JSON file in ``benchmarks/results`` and the tables of ``docs/benchmarks.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import crawl, fleet_report, manners, queue, seen
from benchmarks.measure import ROOT, busy

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PARTS: dict[str, Any] = {
    "queue": queue,
    "crawl": crawl,
    "fleet": fleet_report,
    "manners": manners,
    "seen": seen,
}


def machine_line(results: dict[str, Any]) -> str:
    found = results["machine"]
    return (
        f"Measured on {results['date']}: {found['cpu']}, {found['cores']} cores, {found['system']}, "
        f"{found['filesystem']}; Python {found['python']}, Scrapy {found['scrapy']}, "
        f"Twisted {found['twisted']}, queuelib {found['queuelib']}, SQLite {found['sqlite']}, "
        f"scrapy-fleet {found['scrapy-fleet']}. Load average before the start: {found['load']}."
    )


def warnings(results: dict[str, Any]) -> list[str]:
    """Why these numbers should not be trusted much."""
    lines = []
    if busy(results["machine"]):
        lines.append(f"The machine was busy before the start (load average {results['machine']['load']}).")
    noisy = [line for name, part in measured(results) for line in part.noise(results[name])]
    if noisy:
        lines.append(f"These spread by more than 15 %: {'; '.join(noisy)}.")
    return lines


def measured(results: dict[str, Any]) -> list[tuple[str, Any]]:
    """The parts that were measured this time."""
    return [(name, part) for name, part in PARTS.items() if name in results]


def goals(results: dict[str, Any]) -> list[str]:
    return [line for name, part in measured(results) for line in part.goals(results[name])]


def sections(results: dict[str, Any]) -> dict[str, str]:
    """What stands between the markers of the page, by the marker's name."""
    bullets = "\n".join(f"- {line}" for line in goals(results))
    notes = "\n".join(f"\n**Note:** {line}" for line in warnings(results))
    return {
        "machine": f"{machine_line(results)}\n{notes}".strip(),
        "goals": bullets,
        **{f"{name} table": part.tables(results[name]) for name, part in measured(results)},
    }


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


def keep(results: dict[str, Any], folder: Path = RESULTS, page: Path = PAGE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{results['date']}.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}  # other parts, that day
    file.write_text(json.dumps({**earlier, **rounded(results)}, indent=1) + "\n", encoding="utf-8")
    page.write_text(fill_in(page.read_text(encoding="utf-8"), sections(results)), encoding="utf-8")
    return file


def rounded(value: Any) -> Any:
    """Four digits say all that was measured."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value
