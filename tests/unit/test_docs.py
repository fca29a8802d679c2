"""What the pages promise: links, paths and commands that exist, Python that can be imported, rooms that are there."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fsjoule.cli import app_of
from fsjoule.runs.options import BenchOptions, rows

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), PROJECT / "meter/README.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Paths of the repository in `code`, without placeholders.
PATH = re.compile(r"`((?:src|tests|docs|env|images|labgrid|benchmarks|probe|\.ci)/[\w./-]+)`")
IMPORT = re.compile(r"^from (fsjoule[\w.]*) import (.+)$", re.MULTILINE)
SOURCES = sorted((PROJECT / "src").rglob("*.py"))
FENCED = re.compile(r"^ *```.*?$(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
# A command ends at the shell's own characters, at a command within it, at an ellipsis, and at a sentence's end.
COMMAND = re.compile(r"(?:^ *|\$\(|[$:;&|(] +)(?:\.venv/bin/)?fsjoule((?: +(?!\$\()[^\s|;&>#`,)\"']+)+)")
# A reader had to guess what these mean: "uses more energy", "not decided".
UNPLAIN = re.compile(r"hungrier|thriftier|told apart|cannot be told\b(?! from)")
APP: Any = typer.main.get_command(app_of(""))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitLab and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_links_and_paths_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    wrong: list[str] = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            wrong.append(link)
    wrong += [path for path in PATH.findall(text) if not (PROJECT / path).exists()]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_python_of_a_page_can_be_imported(page: Path) -> None:
    for module, names in IMPORT.findall(page.read_text()):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_the_index_page_leads_to_every_page() -> None:
    index = PROJECT / "docs/index.md"
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text())}
    assert {page.name for page in index.parent.glob("*.md")} - {"index.md"} - linked == set()


def test_the_readme_and_the_docs_are_short() -> None:
    readme = PROJECT / "README.md"
    pages = [readme, *(page for page in PAGES if page.is_relative_to(PROJECT / "docs") and "adr" not in page.parts)]
    assert len(readme.read_text().split()) <= 700
    assert sum(len(page.read_text().split()) for page in pages) <= 60_000


def test_the_readme_begins_with_the_two_commands_of_set_up() -> None:
    block = FENCED.search((PROJECT / "README.md").read_text())
    assert block is not None
    assert [line.partition("#")[0].strip() for line in block[1].split("\n") if line] == ["make bench", "make test"]


def test_the_architecture_has_every_room_and_module() -> None:
    text = (PROJECT / "docs/architecture.md").read_text()
    package = PROJECT / "src/fsjoule"
    rooms = {f"{init.parent.name}/" for init in package.glob("*/__init__.py")}
    modules = {module.name for module in package.glob("*.py") if module.name != "__init__.py"}
    assert {name for name in rooms | modules if f"| `{name}`" not in text} == set()


def test_words_are_plain() -> None:
    read = [page for page in PAGES if page.parent.name != "adr"] + SOURCES
    assert [file.name for file in read if UNPLAIN.search(file.read_text())] == []


def test_every_room_says_who_may_call_it_and_what_it_may_call() -> None:
    inits = sorted((PROJECT / "src/fsjoule").glob("*/__init__.py"))
    lacking = [
        init.parent.name
        for init in inits
        if not re.search(r"^For: .*^Called by: .*^May call: ", init.read_text(), re.MULTILINE | re.DOTALL)
    ]
    assert lacking == []


def test_the_architecture_has_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in contracts[0]["layers"]]
    picture = re.search(
        r"## Who may call whom.*?```\n(.*?)```", (PROJECT / "docs/architecture.md").read_text(), re.DOTALL
    )
    assert picture is not None
    assert [set(line.split()) for line in picture[1].splitlines()] == layers


def _in_page(text: str) -> Iterator[str]:
    for block in FENCED.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    for span in INLINE.findall(FENCED.sub("", text)):
        yield " ".join(span.split())


def _in_source(text: str) -> Iterator[str]:
    yield from re.findall(r"Example: ([^\n]*(?:\n +[^\n\"]+)?)", text)
    yield from (" ".join(span.split()) for span in INLINE.findall(text))


def _wrong(words: list[str]) -> str | None:
    """The first word that is neither a command nor an option; None if all are."""
    command = APP
    while hasattr(command, "commands") and words and words[0][0] != "-":
        name, *words = words
        if name == "..." or name[0] in "<[" or name.isupper():
            return None
        if name not in command.commands:
            return name
        command = command.commands[name]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    if command.name == "bench":  # it passes pytest's on
        known |= {"--lg-env", "--collect-only", "--alluredir", "-k", "-v"}
        known |= {row.name for _, row in rows(BenchOptions)}
    own = words[: words.index("--")] if "--" in words else words
    options = (word.partition("=")[0].rstrip(".:") for word in own if re.match(r"--?[a-z]", word))
    return next((option for option in options if option not in known), None)


def _wrong_commands(lines: Iterator[str]) -> list[str]:
    found = [(line, match[1].split()) for line in lines for match in COMMAND.finditer(line)]
    return [f"{wrong} in {line}" for line, words in found if (wrong := _wrong(words))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_commands_of_a_page_exist(page: Path) -> None:
    assert _wrong_commands(_in_page(page.read_text())) == []


def test_commands_of_help_texts_and_docstrings_exist() -> None:
    wrong = {source.name: _wrong_commands(_in_source(source.read_text())) for source in SOURCES}
    assert {name: lines for name, lines in wrong.items() if lines} == {}
