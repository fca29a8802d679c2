"""What the addresses of pages may ask for. FastAPI checks it and describes it in the OpenAPI document.

Lists take commas and may be repeated, as options of the command line do. Something empty asks for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from fsjoule.filesystems import named_filesystems
from fsjoule.model import RunStatus
from fsjoule.model.labels import listed
from fsjoule.model.series import Order

LONGEST_NAME: Final = 200
_MOST_NAMES: Final = 50
_MOST_PAGES: Final = 100_000


def _names(given: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever a request holds
    return listed(given)


def _filesystems(given: Any) -> tuple[str, ...]:  # noqa: ANN401 - as above
    return named_filesystems(given, lenient=True)


def _number(given: Any) -> Any:  # noqa: ANN401 - as above
    return given or 1


# Without control characters: a database takes no NUL.
NAME: Final = r"^[^\x00-\x1f\x7f]*$"

Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME, pattern=NAME)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_names), Field(max_length=_MOST_NAMES)]
Filesystems = Annotated[tuple[Name, ...], BeforeValidator(_filesystems), Field(max_length=_MOST_NAMES)]
PageNumber = Annotated[int, BeforeValidator(_number), Field(ge=1, le=_MOST_PAGES, description="Page of the list.")]


class AskedPage(BaseModel):
    """Nothing more than its fields may be asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def texts(self) -> dict[str, str]:
        """What is asked for besides the page, as an address has it."""
        return {
            name: ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
            for name, value in self
            if name != "page"
        }


class AskedStart(AskedPage):
    """The start page asks for nothing."""


class AskedTrend(AskedPage):
    series: Annotated[
        Names, Field(description="Only these series, by key or the start of it, with all they have.")
    ] = ()
    board: Annotated[Names, Field(description="Only these boards.")] = ()
    fs: Annotated[Filesystems, Field(description="Only these filesystems.")] = ()
    workload: Annotated[Names, Field(description="Only these workloads, or operations: randwrite-16k.")] = ()
    suite: Annotated[Names, Field(description="Only these suites.")] = ()
    branch: Annotated[Names, Field(description="Only runs of these branches.")] = ()
    metric: Annotated[Names, Field(description="Figures, or all (default: throughput, duration and energy).")] = ()
    search: Annotated[Name, Field(description="Words that name, board, metric or options must have.")] = ""
    state: Annotated[
        Literal["", "any", "open", "worse", "new", "confirmed", "explained", "bisected", "accepted", "refuted"],
        Field(description="Only series with a change: any, an open one, an open one for the worse, or of this state."),
    ] = ""
    by: Annotated[Order, Field(description="Over time (runs) or over kernels.")] = Order.TIME
    since: Annotated[Name, Field(description="Only from this day or time (UTC).")] = ""
    until: Annotated[Name, Field(description="Only before this day or time (UTC).")] = ""
    page: PageNumber = 1


class AskedRuns(AskedPage):
    run: Annotated[Name, Field(description="Only runs whose id begins so.")] = ""
    board: Annotated[Names, Field(description="Only these boards.")] = ()
    suite: Annotated[Names, Field(description="Only these suites.")] = ()
    branch: Annotated[Names, Field(description="Only these branches.")] = ()
    status: Annotated[
        tuple[RunStatus, ...], BeforeValidator(_names), Field(max_length=_MOST_NAMES, description="As runs have it.")
    ] = ()
    page: PageNumber = 1


class AskedRun(AskedPage):
    """The run stands in the path."""


class AskedComparison(AskedPage):
    baseline: Annotated[
        Name, Field(description="A run, kernel or branch of the index: 6.1, kernel:6.1, run:2a62b3.")
    ] = ""
    candidate: Annotated[Name, Field(description="The side that may have changed.")] = ""
    within: Annotated[Name, Field(description="Both sides are kernels of this run or branch.")] = ""
    board: Annotated[Names, Field(description="Only these boards.")] = ()
    fs: Annotated[Filesystems, Field(description="Only these filesystems.")] = ()
    metric: Annotated[Names, Field(description="Only these figures.")] = ()
    across_boards: Annotated[
        bool, Field(description="Compare different boards of one type, too, whose levels may differ.")
    ] = False


class AskedPlaces(AskedPage):
    """The page of places asks for nothing."""
