"""What the documentation names exists, and what exists is documented."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_fleet.ops.cli import ACTIONS, add_commands
from scrapy_fleet.settings import TABLE
from tests.crash.survival import COLUMNS, SURVIVAL

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = ROOT / "docs" / "commands.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text())


def code(page: Path) -> str:
    """All that a page shows as code, a piece a line."""
    blocks = [block for _, block in FENCE.findall(page.read_text())]
    return "\n".join([*blocks, *CODE.findall(prose(page))])


def cli_commands() -> dict[str, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser()
    add_commands(parser, "scrapy fleet")
    [action] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(action.choices)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@each_page
def test_every_setting_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bFLEET_[A-Z_]*[A-Z]\b", page.read_text()))
    assert named <= {setting.name for setting in TABLE}


@each_page
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bscrapy[ -]fleet ([a-z]\S*)", code(page)))
    assert named <= cli_commands().keys()


def test_every_command_is_documented_with_its_options() -> None:
    documented = sections(COMMANDS)
    shared = documented["Which crawl"]
    for name, parser in cli_commands().items():
        assert f"(#{name})" in COMMANDS.read_text(), f"{name} is not in the list"
        for option in options(parser):
            assert f"`{option}" in documented[name] + shared, f"{name} {option}"
    for action in ACTIONS:
        assert f"`{action}`" in documented["dead"] or f" {action}" in documented["dead"]


def test_no_option_is_documented_that_does_not_exist() -> None:
    shared = {"--json", "--url", "--jobdir"}
    parsers = cli_commands()
    for name, text in sections(COMMANDS).items():
        named = set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", text))
        if name in parsers:
            assert named <= {*options(parsers[name]), *shared}, name
        else:
            assert named <= shared, name


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict(action.choices).values():
                yield from options(inner)
        yield from (option for option in action.option_strings if option not in ("-h", "--help"))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    for name in CODE.findall(prose(page)):
        if re.fullmatch(r"(tests|scrapy_fleet|benchmarks)/[\w/.]+", name):
            assert (ROOT / name).exists(), name
        elif re.fullmatch(r"(crawl|store|ops)/[\w/.]+", name):
            assert (ROOT / "scrapy_fleet" / name).exists(), name


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: their rows, without the line under the head."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [
            [cell.strip() for cell in row.strip("|").split("|")]
            for row in table.splitlines()
            if "---" not in row
        ]
        for table in found
    ]


def test_what_survives_what_is_what_the_tests_try() -> None:
    (head, *rows), _ = tables(sections(GUARANTEES)["What survives what"])
    assert head[1:] == list(COLUMNS)
    assert {event: cells for event, *cells in rows} == {
        event: [cells[mode] for mode in COLUMNS] for event, cells in SURVIVAL.items()
    }


def test_every_guarantee_names_the_test_that_shows_it() -> None:
    text = sections(GUARANTEES)
    _, (_, *rows) = tables(text["What survives what"])
    promises = re.split(r"^\*\*(?=\d+\. )", text["The promises"], flags=re.MULTILINE)[1:]
    assert len(promises) == 8
    for promise in [*(row[-1] for row in rows), *promises]:
        named = re.findall(r"`(tests/[\w/]+\.py)`", promise)
        assert named, promise
        assert all((ROOT / name).is_file() for name in named), promise


@each_page
def test_python_compiles(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text()):
        if language == "python":
            compile(block, str(page), "exec")


def test_every_page_can_be_found_from_the_first() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in LINK.findall(prose(ROOT / "README.md"))}
    assert linked >= set(PAGES[1:])
