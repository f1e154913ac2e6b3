"""What is imported only where it is used, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import environment

HEAVY = ("scrapy", "twisted", "redis", "aiohttp", "lxml")


def loaded_by(statement: str) -> set[str]:
    """The modules that an import brings in."""
    show = "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\n{show}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "scrapy_fleet",
        "scrapy_fleet.errors",
        "scrapy_fleet.frontier",
        "scrapy_fleet.model",
        "scrapy_fleet.settings",
        "scrapy_fleet.store.memory",
        "scrapy_fleet.store.sqlite",
        "scrapy_fleet.ops.cli",
        "scrapy_fleet.ops.site",
    ],
)
def test_what_needs_no_scrapy_does_not_import_it(module: str) -> None:
    assert not loaded_by(f"import {module}") & set(HEAVY)


def test_the_command_does_not_slow_other_commands_of_scrapy_down() -> None:
    """Every call of ``scrapy`` imports it."""
    loaded = loaded_by("import scrapy_fleet.ops.command")
    more = loaded - loaded_by("import scrapy.commands")
    assert {name for name in more if name.startswith("scrapy_fleet")} == {
        "scrapy_fleet",
        "scrapy_fleet.ops",
        "scrapy_fleet.ops.command",
    }
    assert not more & {"redis", "aiohttp", "rich", "sqlite3"}


def test_the_public_names_are_there() -> None:
    import scrapy_fleet

    for name in scrapy_fleet.__all__:
        assert getattr(scrapy_fleet, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = scrapy_fleet.Nothing
