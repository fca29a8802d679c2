"""Advice in words: the answer, what can be told apart, what was not measured, and what was assumed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from fsjoule.model import CARD
from fsjoule.model.labels import counted
from fsjoule.report.findings import figure_text
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
    Axis.WAIT: "s",
    Axis.WEAR: "MiB a day",
    Axis.MOUNT: "s",
}


def title(advice: Advice) -> str:
    found = advice.evidence
    where = found.board if found.storage == CARD else f"{found.board}'s {found.storage}"
    return f"{advice.profile_name} on {where}"


def headline(advice: Advice) -> str:
    """The answer in one line: the filesystems that are worth a choice, and what speaks for and against each."""
    simulated = " (simulated)" if advice.evidence.simulated else ""
    return f"{title(advice)}{simulated}: {_answer(advice)}"


def _answer(advice: Advice) -> str:
    if not any(on_axis(one, axis) for one in advice.figures for axis in DECISIVE):
        return "no answer yet: nothing that this profile does was measured"
    if advice.scores:
        best = advice.scores[0]
        return f"{best.label} has the lowest score, {best.value.value:.2f}, with your weights"
    traits = [(one, _traits(advice, one)) for one in advice.sensible]
    if len(advice.figures) == 1:
        only = advice.figures[0]
        return f"only {only.label} was measured{_told(_losing(only))}"
    if not any(found for _, found in traits):
        told = "; ".join(filter(None, (_losing(one, named=True) for one in advice.figures)))
        return f"{_listed([one.label for one in advice.figures])} cannot be told apart{_told(told)}"
    told = [f"{one.label}{_told(', '.join(filter(None, (*found, _losing(one)))))}" for one, found in traits]
    return " or ".join(told)


def _traits(advice: Advice, one: Figures) -> list[str]:
    """The axes on which this filesystem was told to be less than some other, and none to be less than it."""
    return [
        _best(advice, axis, one)
        for axis in DECISIVE
        if one in advice.first(axis) and any(one.label in advice.less(axis, other.label) for other in advice.figures)
    ]


def _best(advice: Advice, axis: Axis, one: Figures) -> str:
    figure = on_axis(one, axis)
    shared = len([each for each in advice.first(axis) if each is not one])
    alone = LEAST[axis] if not shared else f"{LEAST[axis]} with {counted(shared, 'other')}"
    return alone if figure is None or axis is Axis.LOSS else f"{alone}, {figure_text(figure.value)} {UNITS[axis]}"


def _losing(one: Figures, *, named: bool = False) -> str:
    losses = one.losses
    if losses is None or not losses.cuts.count:
        return ""
    who = f"{one.label} " if named else ""
    return f"{who}lost files in {losses.cuts.count} of {losses.cuts.n} power cuts"


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
        yield f"within {100 * criteria.smallest_effect:g} %: {', '.join(same)}"
    for one in here:
        if one.less is None and not one.same:
            yield f"{one.one} and {one.other} cannot be told apart{_more(one)}"


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


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
