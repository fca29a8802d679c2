"""Pieces of GitLab's and GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fsjoule.report.table import Table

# A branch called @all would tell everybody; KERNEL@RUN tells nobody. GitLab looks for mentions in what a browser would
# show, and in links, where %40 is @:
# https://gitlab.com/gitlab-org/gitlab/-/blob/master/lib/banzai/filter/references/reference_filter.rb
_MENTION: Final = re.compile(r"(?<![A-Za-z0-9])@(?!&#8203;)")
_LINKED_MENTION: Final = re.compile(r"(?<![\w.:/-])(?=%40)")
# Other spellings: of these signs, and of a sign before an @, as in `&amp@all`.
_ENTITY: Final = re.compile(r"&(?=#(?!8203;)|(?:commat|percnt)\b|[A-Za-z0-9]+@)")
# No name begins with it. Renovate writes it, too: https://github.com/renovatebot/renovate/issues/2870
_ZERO_WIDTH_SPACE: Final = "&#8203;"


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that a click on the title unfolds."""
    yield ""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def table_lines(table: Table) -> Iterator[str]:
    if table.title:
        yield plain(table.title)
        yield ""
    yield "|" + "|".join(f" {column.name} " for column in table.columns) + "|"
    yield "|" + "|".join("---:" if column.is_figure else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield "|" + "|".join(f" {plain(cell.joined)} " for cell in row) + "|"


def named_list(lines: Sequence[tuple[str, str]]) -> list[str]:
    return [f"- {plain(name)}: {plain(text)}" for name, text in lines]


def plain(text: str) -> str:
    """Text with markup escaped: branches and mount options contain underscores, bars and stars."""
    for sign in "\\`*_[]|~":
        text = text.replace(sign, "\\" + sign)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return without_mentions(text)


def without_mentions(markdown: str) -> str:
    """Markdown that looks the same and mentions nobody; in code, its entities show."""
    markdown = _MENTION.sub(f"@{_ZERO_WIDTH_SPACE}", _ENTITY.sub("&amp;", markdown))
    return _LINKED_MENTION.sub(_ZERO_WIDTH_SPACE, markdown)
