"""Remarks beside the verdicts: names of series, descriptions of sides, notes for readers. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from fsjoule.errors import ConfigError
from fsjoule.model import REVISION
from fsjoule.model.kernel import Kernel
from fsjoule.model.labels import series_labels
from fsjoule.model.series import Point, Series, Side
from fsjoule.store.finding import FAR_FROM_EQUAL, GUEST_TIME_SPREAD, Finding
from fsjoule.store.standards import CheckedPlace
from fsjoule.verdicts.comparison import ComparedSide, Invalid
from fsjoule.verdicts.drift import Doubt

Boot = tuple[str, Kernel | None, int]

# Interleaved boots give 1/2, one side after the other 0 or 1, two pairs in random order 1/4 to 3/4.
_BALANCED: Final = (0.25, 0.75)
_HINT: Final = ". Kernels measured in one run take turns: --kernel A,B"


class Comparable(NamedTuple):
    """A comparable unit: a series, and a kernel if both sides have the same several."""

    series: Series
    kernel: Kernel | None


def boot_of(point: Point) -> Boot:
    """The identity of a boot, unique across runs."""
    return point.run_id, point.kernel, point.boot


def series_names(*sides: Side) -> dict[Series, str]:
    """Unique names of series: filesystem and workload, with further parts that differ between series."""
    known = dict.fromkeys(chain(*(side.points for side in sides)))
    filesystems = series_labels(one.series for one in known)
    parts = {one: _parts(one) for one in known}
    varying = [i for i, values in enumerate(zip(*parts.values(), strict=True)) if len(set(values)) > 1]
    labels: dict[Series, str] = {}
    for one in known:
        more = "".join(f", {parts[one][i]}" for i in varying)
        labels[one] = f"{filesystems[one.series]} {one.series.workload}{more}"
    return labels


def _parts(one: Series) -> tuple[str, ...]:
    key = one.series
    return key.suite, key.board, key.storage, key.provision.value, "simulated" if one.simulated else "real"


def kernel_names(kernels: Iterable[Kernel | None]) -> dict[Kernel | None, str]:
    """Each kernel's release, or its label if several kernels have one release."""
    known = {kernel for kernel in kernels if kernel}
    releases = [kernel.release for kernel in known]
    return {kernel: kernel.label if releases.count(kernel.release) > 1 else kernel.release for kernel in known}


def _cell_name(cell: Comparable, labels: Mapping[Series, str]) -> str:
    return f"{labels[cell.series]}, kernel {cell.kernel.label}" if cell.kernel else labels[cell.series]


def compared_side(
    side: Side, used: Sequence[Point], only_here: Sequence[Comparable], labels: Mapping[Series, str]
) -> ComparedSide:
    """A report's description of a side: `used` are the compared points, `only_here` the series that the other lacks."""
    times = sorted(point.started_utc for point in used)
    return ComparedSide(
        kind=side.kind,
        name=side.name,
        title=side.title,
        kernels=kernel_labels(used),
        runs=tuple(sorted({point.run_id for point in used})),
        commits=tuple(sorted({point.commit for point in used if point.commit})),
        boots=len(_boot_times(used)),
        measurements=len(used),
        first_utc=times[0],
        last_utc=times[-1],
        invalid=tuple(
            Invalid(point.run_id, point.number, labels[series], point.invalid_reasons)
            for series, group in side.points.items()
            for point in group
            if not point.valid
        ),
        only_here=tuple(_cell_name(cell, labels) for cell in only_here),
    )


def kernel_labels(points: Iterable[Point]) -> tuple[str, ...]:
    """The kernels of these points, oldest first."""
    found = {point.kernel for point in points}
    known = sorted((kernel for kernel in found if kernel), key=lambda kernel: kernel.order)
    return (*(kernel.label for kernel in known), *["an unknown kernel"] * (None in found))


def _boot_times(points: Iterable[Point]) -> dict[Boot, str]:
    times: dict[Boot, str] = {}
    for point in points:
        boot = boot_of(point)
        times[boot] = min(times.get(boot, point.started_utc), point.started_utc)
    return times


def baseline_first(ours: Iterable[Point], theirs: Iterable[Point]) -> float:
    """The share of pairs of boots, one of each side, with the baseline's earlier; equal times count half."""
    before = list(_boot_times(ours).values())
    after = sorted(_boot_times(theirs).values())
    later = sum(2 * len(after) - bisect_left(after, time) - bisect_right(after, time) for time in before)
    return later / (2 * len(before) * len(after))


def version_notes(baseline: Side, candidate: Side) -> list[str]:
    """A note on programs that differ between the sides; branch and commit are meant to differ."""
    differing = [
        f"{name} {_either(baseline.versions[name])} against {_either(candidate.versions[name])}"
        for name in baseline.versions
        if name in candidate.versions and name not in REVISION and baseline.versions[name] != candidate.versions[name]
    ]
    return [f"the sides differ in more than their names say: {'; '.join(differing)}"] if differing else []


def shares_blocks(baseline: Side, candidate: Side) -> bool:
    """Whether both sides are of one run on several boards, each repetition of which is on one of them."""
    runs = [
        {point.run_id for point in chain(*side.points.values()) if point.origin.several}
        for side in (baseline, candidate)
    ]
    return bool(runs[0] & runs[1])


def check_boards(baseline: Side, candidate: Side, *, across: bool) -> None:
    """Raise ConfigError for sides of different boards, unless these are to be compared, or share their levels."""
    boards = [{origin.board for origin in side.origins if origin.board} for side in (baseline, candidate)]
    several = any(origin.several for origin in (*baseline.origins, *candidate.origins))
    apart = boards[0] != boards[1] or (several and not shares_blocks(baseline, candidate))
    if across or not all(boards) or not apart:
        return
    # Boards in guest time have no levels of their own. They share one meter.
    meters = {origin.meter for origin in (*baseline.origins, *candidate.origins)}
    if len(meters) == 1 and None not in meters and not several:
        return
    places = [_either(f"place {board}" for board in each if board) for each in boards]
    raise ConfigError(
        f"baseline and candidate come from different boards: {places[0]} against {places[1]}. Boards of one type "
        "differ, and that would look like a change",
        hint="compare kernels within one run, or on one board; --across-boards compares them all the same",
    )


def origin_notes(baseline: Side, candidate: Side) -> list[str]:
    """Notes if the sides come from different boards of one type, or from different meters, as far as runs say."""
    notes: list[str] = []
    boards = [{f"place {origin.board}" for origin in side.origins if origin.board} for side in (baseline, candidate)]
    if all(boards) and boards[0] != boards[1]:
        notes.append(
            f"baseline and candidate come from different boards: {_either(boards[0])} against {_either(boards[1])}. "
            "Differences between the boards look like changes"
        )
    meters = [{origin.meter for origin in side.origins if origin.meter} for side in (baseline, candidate)]
    if all(meters) and meters[0] != meters[1]:
        notes.append(
            f"baseline and candidate were measured with different meters: {_either(meters[0])} against "
            f"{_either(meters[1])}. Energies may differ by what the meters differ (docs/energy.md)"
        )
    return notes


def drift_notes(baseline: Side, candidate: Side, doubts: Sequence[Doubt]) -> list[str]:
    """A note for each place that was out of control when a side, or both, was measured there."""
    sides = [list(chain(*side.points.values())) for side in (baseline, candidate)]
    if _doubted(sides[0], doubts) == _doubted(sides[1], doubts):
        return place_notes("both sides", sides[0], doubts)
    return [*place_notes("baseline", sides[0], doubts), *place_notes("candidate", sides[1], doubts)]


def place_notes(name: str, points: Iterable[Point], doubts: Sequence[Doubt]) -> list[str]:
    """A note for each place that was out of control when these points of `name` were measured there."""
    return [
        f"{name}: place {place.name} was out of control {_span(found)}: "
        f"{', '.join(f'{each.chart.figure} {each.text}' for each in found)} (fsjoule place drift)"
        for place, found in _doubted(points, doubts).items()
    ]


def _doubted(points: Iterable[Point], doubts: Sequence[Doubt]) -> dict[CheckedPlace, list[Doubt]]:
    doubted: dict[CheckedPlace, list[Doubt]] = {}
    measured = {(point.origin, point.started_utc) for point in points if point.valid}
    for doubt in doubts:
        place = doubt.chart.place
        for origin, utc in measured:
            names = (origin.place or "").split(", ")
            # A run on several places names all of its exporters.
            at = place.name in names and (len(names) > 1 or place.exporter == (origin.exporter or ""))
            if at and doubt.covers(utc):
                doubted.setdefault(place, []).append(doubt)
                break
    return doubted


def _span(doubts: Iterable[Doubt]) -> str:
    known = list(doubts)
    begin = min(each.begin_utc for each in known)[:10]
    ends = [each.end_utc for each in known]
    last = max((each for each in ends if each is not None), default="")[:10]
    return f"from {begin} on" if None in ends else f"from {begin} to {last}"


def _either(versions: Iterable[str]) -> str:
    return " or ".join(sorted(versions))


def is_balanced(share: float) -> bool:
    return _BALANCED[0] <= share <= _BALANCED[1]


def single_notes(findings: Iterable[Finding[object]]) -> list[str]:
    """A note on single boots on a board in guest time: how many figures differ far, which is no verdict."""
    known = [one for one in findings if one.single]
    if not known:
        return []
    far = sum(one.far for one in known)
    note = (
        f"one boot of each side, on a board in guest time, is no verdict. Boots of one kernel spread by at most "
        f"{100 * GUEST_TIME_SPREAD:g} % there (docs/deterministic-figures.md); {far} of {len(known)} figures "
        f"differ by more than {100 * FAR_FROM_EQUAL:g} %, far beyond this"
    )
    return [note]


def order_notes(baseline: ComparedSide, candidate: ComparedSide, share: float) -> list[str]:
    """A note that a drift is not excluded, if the sides did not take turns."""
    if is_balanced(share) or baseline.boots == candidate.boots == 1:
        return []
    first, second = ("baseline", "candidate") if share > _BALANCED[1] else ("candidate", "baseline")
    mostly = "" if share in (0.0, 1.0) else "most of "
    times = " against ".join(f"{side.first_utc} to {side.last_utc}" for side in (baseline, candidate))
    note = (
        f"not interleaved: {mostly}the boots of the {first} ran before those of the {second} ({times}). A drift "
        f"between them looks like a change{_HINT if baseline.runs != candidate.runs else ''}"
    )
    return [note]
