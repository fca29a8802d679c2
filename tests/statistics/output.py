"""What the scripts of this folder have in common: their arguments, and tables or JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar

from rich.console import Console
from rich.table import Table
from scipy import stats

Cell = str | int | float | None
Row = Mapping[str, Cell]
_TELL_S: Final = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many."""

    count: int
    of: int

    @property
    def percent(self) -> float:
        return 100 * self.count / self.of

    @property
    def at_most_percent(self) -> float:
        """Upper bound of the true share with 95 % confidence (Clopper, Pearson 1934)."""
        if self.count == self.of:
            return 100.0
        return 100 * float(stats.beta.ppf(0.95, self.count + 1, self.of - self.count))

    def cells(self, name: str) -> dict[str, Cell]:
        return {f"{name} %": round(self.percent, 3), f"{name} <= %": round(self.at_most_percent, 3)}


@dataclass
class Report:
    """Rows of one script's result; equal keys are columns."""

    title: str
    settings: dict[str, Cell]
    rows: list[Row] = field(default_factory=list[Row])

    def show(self, *, as_json: bool) -> None:
        if as_json:
            document = {"title": self.title, "settings": self.settings, "rows": self.rows}
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            return
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        table = Table(title=self.title, caption=", ".join(f"{k} {v}" for k, v in self.settings.items()))
        for column in columns:
            table.add_column(column, justify="right" if _numeric(self.rows, column) else "left")
        for row in self.rows:
            table.add_row(*(_text(row.get(column)) for column in columns))
        # Piped into a file the table must not be squeezed into 80 columns.
        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(table)


def arguments(description: str, *, trials: int) -> argparse.ArgumentParser:
    """The arguments that every script has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--trials", type=_positive, default=trials, help="simulated trials (or series) a row")
    parser.add_argument("--seed", type=int, default=1, help="of all randomness")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


def told(results: Iterable[T], total: int, name: str, *, every_s: float = _TELL_S) -> Iterator[T]:
    """The same results; stderr tells how many have come, and how long the rest takes at this speed."""
    begin = last = time.monotonic()
    for number, result in enumerate(results, start=1):
        yield result
        now = time.monotonic()
        if now - last >= every_s or number == total:
            last = now
            left = timedelta(seconds=round((now - begin) / number * (total - number)))
            rest = f"{left} left" if number < total else f"took {timedelta(seconds=round(now - begin))}"
            print(f"{name}: {number} of {total}, {rest}", file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
    return number


def _numeric(rows: Sequence[Row], column: str) -> bool:
    return all(isinstance(row.get(column), int | float | None) for row in rows)


def _text(cell: Cell) -> str:
    return "" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell)
