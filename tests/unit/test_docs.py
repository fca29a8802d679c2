"""What the pages promise: links and paths that exist, Python that can be imported, rooms that are there."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), PROJECT / "meter/README.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Paths of the repository in `code`, without placeholders.
PATH = re.compile(r"`((?:src|tests|docs|env|images|labgrid|benchmarks|probe|\.ci)/[\w./-]+)`")
IMPORT = re.compile(r"^from (fsjoule[\w.]*) import (.+)$", re.MULTILINE)


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


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 150


def test_the_architecture_has_every_room_and_module() -> None:
    text = (PROJECT / "docs/architecture.md").read_text()
    package = PROJECT / "src/fsjoule"
    rooms = {f"{init.parent.name}/" for init in package.glob("*/__init__.py")}
    modules = {module.name for module in package.glob("*.py") if module.name != "__init__.py"}
    assert {name for name in rooms | modules if f"| `{name}`" not in text} == set()


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
