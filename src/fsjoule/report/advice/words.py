"""Advice in words: the answer, what can be told apart, what was not measured, and what was assumed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from fsjoule.model import CARD
from fsjoule.model.labels import counted
from fsjoule.report.numbers import percent
from fsjoule.statistics.criteria import Criteria
from fsjoule.verdicts.advice.advise import DECISIVE, Advice, Axis, Relation, on_axis
from fsjoule.verdicts.advice.figures import DAY_S, Figures
from fsjoule.verdicts.advice.parts import FSCK, POWER_LOSS, SUITE, SUITE_OF

LEAST: Final = {
    Axis.ENERGY: "the least energy",
    Axis.LOSS: "the fewest lost files",
    Axis.WAIT: "the shortest wait",
    Axis.WEAR: "the least written",
    Axis.MOUNT: "the quickest mount after a cut",
}
UNITS: Final = {
    Axis.ENERGY: "J a day",
    Axis.LOSS: "files a year",
    Axis.WAIT: "ms",
    Axis.WEAR: "MiB a day",
    Axis.MOUNT: "ms",
}
_MS: Final = 1e3
_WHOLE: Final = 100
_SMALLEST: Final = 1e-3
# Of 40 filesystems a sentence names the first; the table has all.
_MOST_NAMED: Final = 6
_FIRST_NAMED: Final = 4
_MOST_PAIRS: Final = 15  # those of six filesystems


def title(advice: Advice) -> str:
    found = advice.evidence
    where = found.board if found.storage == CARD else f"{found.board}'s {found.storage}"
    return f"{advice.profile_name} on {where}"


def headline(advice: Advice) -> str:
    """The answer in one line: the filesystems that are worth a choice, and what speaks for and against each."""
    simulated = " (simulated)" if advice.evidence.simulated else ""
    return f"{title(advice)}{simulated}: {answer(advice)}"


def answer(advice: Advice) -> str:
    """The headline without the profile and the board."""
    lacking = [axis.value for axis in DECISIVE if not any(on_axis(one, axis) for one in advice.figures)]
    unknown = f"; not measured: {_listed(lacking)}" if 0 < len(lacking) < len(DECISIVE) else ""
    return f"{_answer(advice)}{unknown}"


def _answer(advice: Advice) -> str:
    if not any(on_axis(one, axis) for one in advice.figures for axis in DECISIVE):
        return "no answer yet: nothing that this profile does was measured"
    if advice.scores:
        best = advice.scores[0]
        return f"{best.label} has the lowest score, {best.value.value:.2f}, with your weights"
    if len(advice.figures) == 1:
        return f"only {advice.figures[0].label} was measured{_told(_losing(advice.figures[0]))}"
    groups = _groups(advice)
    told = [_group(advice, axes, group) for axes, group in groups.items()]
    if len(groups) == 1 and len(advice.sensible) > 1:
        return f"{told[0]} cannot be told apart" if not next(iter(groups)) else f"{told[0]}, else not told apart"
    return ", or ".join(told)


def _groups(advice: Advice) -> dict[tuple[Axis, ...], list[Figures]]:
    """The sensible filesystems by the axes that speak for them, those with most axes first."""
    groups: dict[tuple[Axis, ...], list[Figures]] = {}
    for one in advice.sensible:
        groups.setdefault(_speaking(advice, one), []).append(one)
    return dict(sorted(groups.items(), key=lambda group: -len(group[0])))


def _speaking(advice: Advice, one: Figures) -> tuple[Axis, ...]:
    """The axes on which this filesystem was told to be less than another sensible one, and none to be less than it.

    If there is only one sensible filesystem, less than any other.
    """
    others = advice.sensible if len(advice.sensible) > 1 else advice.figures
    return tuple(
        axis
        for axis in DECISIVE
        if one in advice.first(axis) and any(one.label in advice.less(axis, other.label) for other in others)
    )


def _group(advice: Advice, axes: Sequence[Axis], group: Sequence[Figures]) -> str:
    """`ext4:nobarrier (the least energy, 38.5 J a day; but it lost files in 10 of 10 power cuts)`."""
    alone = group[0] if len(group) == 1 else None
    for_it = [_best(advice, axis, alone) for axis in axes]
    losing = [one for one in group if _losing(one)]
    against = [f"but {_losing(one, named=alone is None)}" for one in losing]
    if len(against) > _MOST_NAMED:
        against = [f"but {len(losing)} of them lost files in power cuts"]
    names = _listed([one.label for one in group], "or" if axes else "and")
    return f"{names}{_told('; '.join((*for_it, *against)))}"


def _best(advice: Advice, axis: Axis, one: Figures | None) -> str:
    """`the least energy, 38.5 J a day`, with the filesystem whose figure is lower but cannot be told from it."""
    figure = None if one is None or axis is Axis.LOSS else on_axis(one, axis)
    if figure is None:
        return LEAST[axis]
    factor = _MS if UNITS[axis] == "ms" else 1.0
    told = f"{LEAST[axis]}, {short_figure(factor * figure.value)} {UNITS[axis]}"
    lower = {each.label: other.value for each in advice.figures if (other := on_axis(each, axis)) is not None}
    lowest = min(lower, key=lower.__getitem__)
    near = lower[lowest] < figure.value
    return f"{told}, not told from {lowest}'s {short_figure(factor * lower[lowest])}" if near else told


def short_figure(value: float) -> str:
    """Three significant digits, and whole numbers from 100 on; zero below a thousandth."""
    if math.isinf(value):
        return "∞"
    if abs(value) < _SMALLEST:
        return "0"
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:#.3g}".rstrip(".")


def _losing(one: Figures, *, named: bool = False) -> str:
    losses = one.losses
    if losses is None or not losses.cuts.count:
        return ""
    who = one.label if named else "it"
    return f"{who} lost files in {losses.cuts.count} of {losses.cuts.n} power cuts"


def _told(text: str) -> str:
    return f" ({text})" if text else ""


def ruled_out(advice: Advice) -> list[tuple[str, str]]:
    """Filesystems that another one beats, with the reason."""
    found: list[tuple[str, str]] = []
    sensible = {one.label for one in advice.sensible}
    for one in advice.figures:
        if one.label in sensible:
            continue
        told = [f"{axis}: {_listed(better)}" for axis in DECISIVE if (better := advice.less(axis, one.label))]
        found.append((one.label, f"beaten in {'; '.join(told)}"))
    return found


def relations(advice: Advice) -> list[tuple[str, str]]:
    """For each axis, which filesystems were told apart, which are the same, and what would decide the rest."""
    found: list[tuple[str, str]] = []
    for axis in Axis:
        here = [one for one in advice.relations if one.axis is axis]
        if here:
            found.append((axis.value, "; ".join(_relations(here, advice.criteria))))
    return found


def _relations(here: Sequence[Relation], criteria: Criteria) -> Iterable[str]:
    less: dict[str, list[str]] = {}
    for one in here:
        if one.less is not None:
            less.setdefault(one.less, []).append(f"{_other(one)} ({_share(one)})" if _share(one) else _other(one))
    for label, others in sorted(less.items(), key=lambda item: -len(item[1])):
        yield f"{label} is less than {_listed(others)}"
    if same := [f"{one.one} and {one.other}" for one in here if one.same]:
        yield f"within {100 * criteria.smallest_effect:g} %: {_pairs(same)}"
    yield from _open([one for one in here if one.less is None and not one.same], of=len(here))


def _open(here: Sequence[Relation], *, of: int) -> Iterable[str]:
    """Pairs that cannot be told apart, by what would help."""
    by_need: dict[str, list[str]] = {}
    for one in here:
        by_need.setdefault(_more(one), []).append(f"{one.one} and {one.other}")
    for need, pairs in by_need.items():
        which = "no two" if len(pairs) == of > 1 else _pairs(pairs)
        yield f"{which} can be told apart{need}" if len(pairs) == of > 1 else f"{which} cannot be told apart{need}"


def _other(one: Relation) -> str:
    return one.other if one.less == one.one else one.one


def _share(one: Relation) -> str:
    """By how much it is less; nothing about losses, whose medians are mostly zero."""
    ratio = one.basis.ratio
    if ratio is None or one.axis is Axis.LOSS:
        return ""
    return percent(1 - (ratio.value if one.less == one.other else 1 / ratio.value))


def _more(one: Relation) -> str:
    what = "cut" if one.axis in (Axis.LOSS, Axis.MOUNT) else "boot"
    more = max(one.basis.more_baseline or 0, one.basis.more_candidate or 0)
    return f" ({counted(more, f'more {what}')} of each would help)" if more else ""


def missing(advice: Advice) -> list[tuple[str, str]]:
    """What was not measured, each with the command that measures it."""
    by_slug: dict[str, list[str]] = {}
    for one in advice.figures:
        for slug in one.missing:
            by_slug.setdefault(slug, []).append(one.filesystem.name)
    by_command: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for slug, names in by_slug.items():
        by_command.setdefault((SUITE_OF.get(slug, SUITE), tuple(names)), []).append(slug)
    return [(", ".join(slugs), _command(advice, suite, names, slugs)) for (suite, names), slugs in by_command.items()]


def _command(advice: Advice, suite: str, names: Sequence[str], slugs: Sequence[str]) -> str:
    found = advice.evidence
    words = ["pytest", "tests/bench", "--lg-env", found.environment or "FILE", "--suite", suite]
    words += ["--fs", ",".join(names)]
    words += [] if found.storage == CARD else ["--storage", found.storage]
    return shlex.join([*words, "-k", " or ".join(map(_pattern, slugs))])


def _pattern(slug: str) -> str:
    """The -k for a workload, whose name may be a part of another's: `write-4k`, `randwrite-4k-fsync1`."""
    if slug in (POWER_LOSS, FSCK):
        return slug
    unlike = ["rand"] if not slug.startswith("rand") and "-" in slug and not slug.startswith("write_files") else []
    unlike += [] if slug.endswith("fsync1") or slug.startswith("write_files") else ["fsync1"]
    return f"({' and not '.join([slug, *unlike])})" if unlike else slug


def notes(advice: Advice) -> list[str]:
    """What a reader must know of these figures."""
    profile, found = advice.profile, advice.evidence
    told: list[str] = []
    if found.idle_w and profile.idle_share:
        told.append(
            "idle power is the board's, from the second before each measurement: the same for all filesystems, so that "
            "only their work differs"
        )
    elif profile.idle_share and not found.idle_w:
        told.append("there is no energy: no measurement has the board's idle power (was there a meter?)")
    told += [
        f"{one.label}: a day's I/O takes {one.work_s.value / 3600:.1f} hours: this board cannot do it"
        for one in advice.figures
        if one.work_s and one.work_s.value > DAY_S
    ]
    if any(one.written_mib for one in advice.figures):
        told.append(
            "years: of the bytes that the device was told to write. What its flash writes beyond them is not known: no "
            "health registers were read. So the card may wear out sooner"
        )
    if any(one.losses for one in advice.figures):
        told.append(
            "lost files: each power cut is taken to hit a board that makes files and fsyncs each, as in the suite; a "
            "cut of a board that writes nothing loses fewer"
        )
    if any(one.fsck_s for one in advice.figures):
        told.append("fsck: of a clean filesystem; the mount is that after a power cut")
    if any(one.energy_j and one.energy_j.n == 1 for one in advice.figures):
        told.append("a single boot shows no spread: its intervals have only the meter's uncertainty")
    if found.invalid:
        told.append(f"{counted(found.invalid, 'invalid measurement')} not used")
    return told


def rules(criteria: Criteria) -> str:
    return (
        "figures: means over boots with their 95 % interval, the meter's uncertainty included; files lost: of all "
        "power cuts, with the 95 % bounds of Hoeffding; wait: the longest p99 of what the profile does; told apart: "
        f"p <= {100 * criteria.alpha:g} % and q <= {100 * criteria.false_discoveries:g} % over all pairs and figures, "
        "as in fsjoule compare (docs/advice.md)"
    )


def facts(advice: Advice) -> list[tuple[str, str]]:
    """The profile and the evidence as names and texts."""
    profile, found = advice.profile, advice.evidence
    lines = [
        ("profile", profile.title),
        ("reads", _traffic(profile.reads.mib_per_day, profile.reads.block_kib, profile.reads.random_share)),
        ("writes", _traffic(profile.writes.mib_per_day, profile.writes.block_kib, profile.writes.random_share)),
        ("fsyncs, files", f"{profile.fsyncs_per_hour:g} fsyncs an hour, {profile.files_per_day:g} files a day"),
        ("idle", f"{100 * profile.idle_share:g} % of the time without I/O; else off"),
        ("power cuts", f"{profile.power_cuts_per_year:g} a year"),
        ("battery", f"{profile.battery.wh:g} Wh" if profile.battery else ""),
        (
            "card",
            f"{profile.card.size_gib:g} GiB, rated for {profile.card.endurance_tib:g} TiB" if profile.card else "",
        ),
        ("board", f"{found.board}, {found.storage}, kernel {found.kernel}"),
        ("runs", ", ".join(found.runs)),
    ]
    return [(name, text) for name, text in lines if text]


def _traffic(mib_per_day: float, block_kib: int, random_share: float) -> str:
    return f"{mib_per_day:g} MiB a day in blocks of {block_kib} KiB, {100 * random_share:g} % at random"


def _listed(names: Sequence[str], joined: str = "and") -> str:
    """`a, b and c`; the first of many."""
    if len(names) > _MOST_NAMED:
        names = [*names[:_FIRST_NAMED], counted(len(names) - _FIRST_NAMED, "other")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def _pairs(pairs: Sequence[str]) -> str:
    return ", ".join(pairs) if len(pairs) <= _MOST_PAIRS else counted(len(pairs), "pair")
