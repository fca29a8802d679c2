"""A lab in the terminal."""

from __future__ import annotations

from rich.console import Console

from fsjoule.model.places import Lab
from fsjoule.report.places import tables, words
from fsjoule.report.terminal import footnote, print_table


def show(lab: Lab, console: Console, *, wide: bool) -> None:
    console.print(f"coordinator {lab.coordinator}, at {words.moment(lab.looked_s)}", highlight=False)
    console.print(words.headline(lab), highlight=False)
    for table in (tables.places(lab), tables.queue(lab), tables.last_runs(lab), tables.faults(lab)):
        if table.rows:
            print_table(console, table, wide=wide)
    for folder, why in lab.damaged.items():
        console.print(footnote(f"{folder}: {why}"))
