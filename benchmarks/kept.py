"""What was measured, in ``benchmarks/results``: a file a day, and in it each part with when and how.

``<date>.json`` has full measurements and belongs to the repository; the page shows the newest of each part.
``<date>-short.json`` has those of ``make bench``, which are for whoever ran it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT

RESULTS = ROOT / "benchmarks" / "results"
Run = dict[str, Any]
"""``date``, ``machine``, and ``parts``: by name, ``when``, ``size``, ``took``, ``load``, ``others``,
``speed`` (before and after) and ``figures``, which is what the part measured."""


def file_of(run: Run, folder: Path = RESULTS) -> Path:
    short = any(entry["size"] == "short" for entry in run["parts"].values())
    return folder / f"{run['date']}{'-short' * short}.json"


def write(run: Run, folder: Path = RESULTS) -> Path:
    """Other parts that were measured on that day stay, with the machine they were measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    file = file_of(run, folder)
    earlier = read(file) if file.exists() else {"parts": {}}
    whole = {**run, "parts": {**_there(earlier), **run["parts"]}}
    file.write_text(json.dumps(rounded(whole), indent=1) + "\n", encoding="utf-8")
    return file


def read(file: Path) -> Run:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SystemExit(f"{file} is not JSON: {error}.") from error
    if not isinstance(found, dict) or "parts" not in found or "machine" not in found:
        raise SystemExit(f"{file} has no results of python -m benchmarks.run.")
    return found


def newest(folder: Path = RESULTS, *, short: bool = False) -> Run:
    """The newest full measurement of each part; with ``short``, the newest of any size."""
    files = [file for file in sorted(folder.glob("*.json")) if short or not file.stem.endswith("-short")]
    whole: Run = {"parts": {}}
    for run in map(read, files):
        if run["date"] >= whole.get("date", ""):
            whole = {**run, "parts": whole["parts"]}
        for name, entry in _there(run).items():
            if entry["when"] >= whole["parts"].get(name, {"when": ""})["when"]:
                whole["parts"][name] = entry
    return whole


def _there(run: Run) -> dict[str, Any]:
    """The parts of a run, each with its machine: not all that one file has need be of the same."""
    return {name: {"machine": run["machine"], **entry} for name, entry in run["parts"].items()}


def completed(run: Run, folder: Path = RESULTS) -> Run:
    """A run, and the newest full measurement of what is not in it."""
    return {**run, "parts": {**newest(folder)["parts"], **run["parts"]}}


def figures(run: Run) -> dict[str, Any]:
    """What was measured, by part, and nothing about it."""
    return {name: entry["figures"] for name, entry in run["parts"].items()}


def rounded(value: Any) -> Any:
    """Four digits say all that was measured."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
