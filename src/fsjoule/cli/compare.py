"""`fsjoule compare`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsjoule.cli.common import AcrossBoards, BoardNames, Filesystems, Page, Within, progress, write_text
from fsjoule.cli.explain import found_or_warned
from fsjoule.cli.index import DEFAULT_LOCATION, Location
from fsjoule.cli.options import AnswerOptions, argument, file_option, with_options
from fsjoule.cli.outputs import outputs
from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.runs.options import flag, option
from fsjoule.statistics.outcome import Criteria

if TYPE_CHECKING:
    from fsjoule.verdicts.comparison import Compared
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()
_DEFAULTS = Criteria()


@dataclass(frozen=True, kw_only=True)
class CompareOptions(AnswerOptions):
    baseline: str = argument("", "The side to compare with.", ...)
    candidate: str | None = argument("", "The side that may have changed (default: the newest run).")
    within: Within = None
    index: Location = DEFAULT_LOCATION
    board: BoardNames = None
    fs: Filesystems = None
    metric: list[Metric] | None = option("", f"Only this figure; may be repeated: {', '.join(Metric)}.")
    alpha: float = option("", "Two-sided level of one comparison.", _DEFAULTS.alpha)
    false_discoveries: float = option(
        "", "Share of false changes among all reported changes.", _DEFAULTS.false_discoveries
    )
    smallest_effect: float = option(
        "",
        "Smallest change that matters, as a fraction of the baseline: 0.05 is 5 %.",
        _DEFAULTS.smallest_effect,
    )
    across_boards: AcrossBoards = False
    only_changes: bool = flag("Leave out unchanged figures.")
    markdown: bool = flag("Print Markdown, for a merge request.")
    chart: Path | None = file_option("Write an SVG of all ratios to FILE.")
    page: Page = None

    def criteria(self) -> Criteria:
        """The criteria; a small smallest effect lowers `negligible` too. Raises ConfigError unless in (0, 1)."""
        limits = {name: getattr(self, name) for name in ("alpha", "false_discoveries", "smallest_effect")}
        for name, value in limits.items():
            if not 0 < value < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} {value:g} is not a fraction between 0 and 1", hint="5 % is 0.05")
        return Criteria(**limits, negligible=min(_DEFAULTS.negligible, self.smallest_effect))


@app.command("compare")
@with_options
def compare(asked: CompareOptions) -> None:
    """Compare two finished sides: one verdict per series and figure, with its error rate.

    A side is a run (the start of its id, `last`, its folder, or a folder of runs), or a kernel or branch of the index:
    6.1, kernel:6.1, branch:main, run:2a62b3. KERNEL@RUN is a kernel within one run. Folders need not be imported.

    Exit code: 0 whatever the verdicts, 2 if the sides cannot be compared.

    Example: fsjoule compare 6.1 6.12 --within last --page compare.html; fsjoule compare abc123 last
    """
    from fsjoule.filesystems import named_filesystems
    from fsjoule.model.labels import listed
    from fsjoule.model.series import Where
    from fsjoule.store.run_folders import LAST
    from fsjoule.store.sides import Sources
    from fsjoule.verdicts.compare import compare_sides
    from fsjoule.verdicts.drift import doubts_beside

    printed = {"json": asked.json_output, "markdown": asked.markdown}
    shown = outputs(asked.form, printed=printed, files={"page": asked.page})
    criteria = asked.criteria()
    metrics = tuple(asked.metric or ())
    where = Where(boards=listed(asked.board), filesystems=named_filesystems(asked.fs, lenient=True))
    with Sources(asked.index) as sources:
        sides = [
            sources.side(text, where, metrics or tuple(Metric), within=asked.within)
            for text in (asked.baseline, asked.candidate or LAST)
        ]
    doubts = doubts_beside([folder for side in sides for folder in side.folders.values()])
    compared = compare_sides(
        sides[0], sides[1], criteria, metrics=metrics, across_boards=asked.across_boards, doubts=doubts
    )
    from fsjoule.report.comparison import ComparisonView

    shown.show(
        ComparisonView(compared, asked.only_changes, asked.everything, asked.wide, partial(_explained, compared))
    )
    if asked.chart is not None:
        _write_chart(compared, asked.chart)


def _write_chart(compared: Compared, file: Path) -> None:
    from fsjoule.report.comparison import sides
    from fsjoule.report.forest_chart import forest_chart

    title = f"Change, {sides(compared.baseline, compared.candidate)}"
    drawn = forest_chart(compared.findings, title, simulated=compared.simulated)
    if drawn is None:
        progress(f"{file} was not written: no comparison has a ratio")
    else:
        write_text(file, drawn)
        progress(f"chart  {file}")


def _explained(compared: Compared) -> tuple[Explanation, ...]:
    """Why figures of two kernels of one run differ, if the run has profiles; empty otherwise."""
    from fsjoule.runs.explain import explain_compared

    return found_or_warned(lambda: explain_compared(compared))
