"""`fsjoule compare`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsjoule.cli.common import (
    AcrossBoards,
    All,
    BoardNames,
    Filesystems,
    Json,
    Page,
    Wide,
    Within,
    output_file,
    progress,
    write_text,
)
from fsjoule.cli.explain import found_or_warned
from fsjoule.cli.index import DEFAULT_LOCATION, Location
from fsjoule.cli.outputs import Format, outputs
from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.statistics.criteria import Criteria

if TYPE_CHECKING:
    from fsjoule.verdicts.comparison import Compared
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()
_DEFAULTS = Criteria()
_METRIC = f"Only this figure; may be repeated: {', '.join(Metric)}."


@app.command("compare")
def compare(
    *,
    baseline: Annotated[str, typer.Argument(help="The side to compare with.")],
    candidate: Annotated[
        str | None, typer.Argument(help="The side that may have changed (default: the newest run).")
    ] = None,
    within: Within = None,
    index: Location = DEFAULT_LOCATION,
    board: BoardNames = None,
    fs: Filesystems = None,
    metric: Annotated[list[Metric] | None, typer.Option("--metric", help=_METRIC)] = None,
    alpha: Annotated[float, typer.Option(help="Two-sided level of one comparison.")] = _DEFAULTS.alpha,
    false_discoveries: Annotated[
        float, typer.Option(help="Share of false changes among all reported changes.")
    ] = _DEFAULTS.false_discoveries,
    smallest_effect: Annotated[
        float, typer.Option(help="Smallest change that matters, as a fraction of the baseline: 0.05 is 5 %.")
    ] = _DEFAULTS.smallest_effect,
    across_boards: AcrossBoards = False,
    only_changes: Annotated[bool, typer.Option("--only-changes", help="Leave out unchanged figures.")] = False,
    everything: All = False,
    wide: Wide = False,
    form: Format = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a merge request.")] = False,
    json_output: Json = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=output_file, help="Write an SVG of all ratios to FILE.")
    ] = None,
    page: Page = None,
) -> None:
    """Compare two finished sides: one verdict per series and figure, with its error rate.

    A side is a run (the start of its id, `last`, its folder, or a folder of runs), or a kernel or branch of the index:
    6.1, kernel:6.1, branch:main, run:2a62b3. KERNEL@RUN is a kernel within one run. Folders need not be imported.

    Exit code: 0 whatever the verdicts, 2 if the sides cannot be compared.

    Example: fsjoule compare 6.1 6.12 --within last --page compare.html; fsjoule compare abc123 last
    """
    from fsjoule.model.labels import listed
    from fsjoule.model.series import Where
    from fsjoule.store.run_folders import LAST
    from fsjoule.store.sides import Sources
    from fsjoule.verdicts.compare import compare_sides

    shown = outputs(form, printed={"json": json_output, "markdown": markdown}, files={"page": page})
    limits = ComparisonLimits(alpha, false_discoveries, smallest_effect)
    wanted = tuple(metric or ())
    where = Where(boards=listed(board), filesystems=listed(fs))
    with Sources(index) as sources:
        sides = [
            sources.side(text, where, wanted or tuple(Metric), within=within) for text in (baseline, candidate or LAST)
        ]
    compared = compare_sides(sides[0], sides[1], limits.criteria(), metrics=wanted, across_boards=across_boards)
    from fsjoule.report.comparison import ComparisonView

    view = ComparisonView(compared, only_changes, everything, wide, partial(_explained, compared))
    shown.show(view)
    if chart is not None:
        _write_chart(compared, chart)


@dataclass(frozen=True, slots=True)
class ComparisonLimits:
    """The criteria that a user may set, as fractions."""

    alpha: float
    false_discoveries: float
    smallest_effect: float

    def criteria(self) -> Criteria:
        """The criteria; a small smallest effect lowers `negligible` too. Raises ConfigError unless in (0, 1)."""
        for name in ("alpha", "false_discoveries", "smallest_effect"):
            value = getattr(self, name)
            if not 0 < value < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} {value:g} is not a fraction between 0 and 1", hint="5 % is 0.05")
        return Criteria(
            alpha=self.alpha,
            false_discoveries=self.false_discoveries,
            smallest_effect=self.smallest_effect,
            negligible=min(_DEFAULTS.negligible, self.smallest_effect),
        )


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
