"""Advice in words: the answer, which filesystem is less, what was not measured, and what was assumed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from fsjoule.model import CARD
from fsjoule.model.labels import counted
from fsjoule.report.numbers import percent
from fsjoule.suites.profile import profile_names
from fsjoule.verdicts.advice.advise import DECISIVE, PAIRED, Advice, Axis, Relation, on_axis
from fsjoule.verdicts.advice.figures import DAY_S, DAYS_PER_YEAR, FilesystemFigures

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
MANY_DAYS: Final = 2 * DAYS_PER_YEAR
# More boots than these are no advice.
_MOST_ADVISED: Final = 100
# Of 40 filesystems a sentence names the first; the table has all.
_MOST_NAMED: Final = 6
_FIRST_NAMED: Final = 4
_MOST_PAIRS: Final = 15  # those of six filesystems


def title(advice: Advice) -> str:
    found = advice.evidence
    where = found.board if found.storage == CARD else f"{found.board}'s {found.storage}"
    return f"{advice.profile_name} on {where}"


def headline(advice: Advice) -> str:
    """The answer in one line: `f2fs for a logger on board's stick: the least energy, 333 J a day; or ext4 (...)`."""
    simulated = " (simulated)" if advice.evidence.simulated else ""
    found = advice.evidence
    where = found.board if found.storage == CARD else f"{found.board}'s {found.storage}"
    name = advice.profile_name
    whom = f"a {name.replace('-', ' ')}" if name in profile_names() else f"the profile {name}"
    first, told = _answer(advice)
    return f"{first} for {whom} on {where}{simulated}: {told}"


def answer(advice: Advice) -> str:
    """The headline without the profile and the board."""
    return ": ".join(_answer(advice))


def _answer(advice: Advice) -> tuple[str, str]:
    """The first choice, and what is said of it and of the others."""
    axes = [axis for axis in DECISIVE if _can_be_measured(advice, axis)]
    lacking = [axis.value for axis in axes if not any(on_axis(one, axis) for one in advice.figures)]
    if len(lacking) == len(axes):
        return "no answer yet", "too little of what this profile does was measured"
    first, told = _choice(advice)
    return first, "; ".join([told, *([f"not measured: {_listed(lacking)}"] if lacking else [])])


def _can_be_measured(advice: Advice, axis: Axis) -> bool:
    if axis is Axis.LOSS:
        return not advice.evidence.no_cuts and advice.profile.power_cuts_per_year > 0
    return not (axis is Axis.WAIT and advice.evidence.guest_time)


def _choice(advice: Advice) -> tuple[str, str]:
    best = advice.ranked[0]
    if advice.scores:
        told = f"the lowest score, {advice.scores[0].value.value:.2f}, with your weights"
        return best.label, "; but ".join([told, *([_losing(best)] if _losing(best) else [])])
    if len(advice.figures) == 1:
        return best.label, "; but ".join(["the only one measured", *([_losing(best)] if _losing(best) else [])])
    unsafe = advice.unsafe
    groups: dict[tuple[Axis, ...], list[FilesystemFigures]] = {}
    for one in advice.ranked:
        if one in advice.sensible and one not in unsafe:
            groups.setdefault(advice.speaking(one), []).append(one)
    if not groups:  # each of them is beaten by another one
        groups[()] = [one for one in advice.ranked if one not in unsafe]
    (axes, first), *others = groups.items()
    names = _listed([one.label for one in first], "or")
    parts = [_reasons(advice, axes, first) or _open_choice(advice, first)]
    for axes, group in others:
        reasons = _reasons(advice, axes, group)
        parts.append(f"or {_listed([one.label for one in group], 'or')}{f' ({reasons})' if reasons else ''}")
    if last := [one for one in unsafe if one in advice.sensible]:
        parts.append(_last(advice, last))
    return names, "; ".join(parts)


def _open_choice(advice: Advice, first: Sequence[FilesystemFigures]) -> str:
    """What is known of filesystems for none of which anything speaks."""
    if len(first) == 1 and advice.unsafe:
        cuts = first[0].losses.cuts.n if first[0].losses else 0
        return f"it lost no synced file in {counted(cuts, 'power cut')}" if cuts else "it flushes what is synced"
    names = {one.label for one in first}
    between = [one for one in advice.relations if {one.one, one.other} <= names and one.axis in DECISIVE]
    if between and all(one.same for one in between if one.axis is not Axis.LOSS):
        against = _against(first)
        return "; ".join([f"equal within {100 * advice.rule.equal_within:g} %", *against])
    needed = [one.more for one in between if one.more and one.axis in PAIRED]
    more = f" ({counted(max(needed), 'more boot')})" if needed and max(needed) <= _MOST_ADVISED else ""
    return "; ".join([f"not yet decided{more}", *_against(first)])


def _reasons(advice: Advice, axes: Sequence[Axis], group: Sequence[FilesystemFigures]) -> str:
    """`the least energy, 333 J a day; the shortest wait, 59 ms; but it lost files in 1 of 10 power cuts`."""
    alone = group[0] if len(group) == 1 else None
    return "; ".join([*(_best(advice, axis, alone) for axis in axes), *(_against(group) if axes else ())])


def _against(group: Sequence[FilesystemFigures]) -> list[str]:
    losing = [one for one in group if _losing(one)]
    if len(losing) > _MOST_NAMED:
        return [f"but {len(losing)} of them lost files in power cuts"]
    return [f"but {_losing(one, named=len(group) > 1)}" for one in losing]


def _last(advice: Advice, unsafe: Sequence[FilesystemFigures]) -> str:
    """`last ext4:nobarrier (the least energy, 346 J a day; but it lost files in 8 of 8 power cuts)`."""
    if len(unsafe) > _MOST_NAMED:
        return f"last {counted(len(unsafe), 'other')}, which lose synced files in power cuts"
    told = [
        "; ".join([*(_best(advice, axis, one) for axis in advice.speaking(one)), f"but {_losing(one)}"])
        for one in unsafe
    ]
    return "last " + ", ".join(
        f"{one.label} ({why.removeprefix('but ')})" for one, why in zip(unsafe, told, strict=True)
    )


def _best(advice: Advice, axis: Axis, one: FilesystemFigures | None) -> str:
    """`the least energy, 38.5 J a day`, with the filesystem whose figure is lower but not shown to be."""
    figure = None if one is None or axis is Axis.LOSS else on_axis(one, axis)
    if one is None or figure is None:
        return LEAST[axis]
    factor = _MS if UNITS[axis] == "ms" else 1.0
    told = f"{LEAST[axis]}, {short_figure(factor * figure.value)} {UNITS[axis]}"
    if axis is Axis.ENERGY and one.battery_days:
        told += f" and {_battery_text(one.battery_days.value)} of battery"
    lower = {
        each.label: other.value
        for each in advice.figures
        if (one in advice.unsafe or each not in advice.unsafe) and (other := on_axis(each, axis)) is not None
        # What flash erases is no less or more than what a card is written.
        if axis is not Axis.WEAR or bool(each.filesystem.flash_mib) is bool(one.filesystem.flash_mib)
    }
    lowest = min(lower, key=lower.__getitem__)
    near = lower[lowest] < figure.value
    return f"{told}, {lowest}'s {short_figure(factor * lower[lowest])} is not shown to be less" if near else told


def _battery_text(days: float) -> str:
    """`13 days`, or from two years on `2.4 years`."""
    if math.isinf(days):
        return "∞"
    return f"{short_figure(days / DAYS_PER_YEAR)} years" if days > MANY_DAYS else f"{short_figure(days)} days"


def short_figure(value: float) -> str:
    """Three significant digits, and whole numbers from 100 on; zero below a thousandth."""
    if math.isinf(value):
        return "∞"
    if abs(value) < _SMALLEST:
        return "0"
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:#.3g}".rstrip(".")


def _losing(one: FilesystemFigures, *, named: bool = False) -> str:
    if not one.loses_files:
        return ""
    who = one.label if named else "it"
    if one.losses is None:
        return f"{who} sends no flushes, so power cuts lose synced files"
    return f"{who} lost files in {one.losses.cuts.count} of {one.losses.cuts.n} power cuts"


def ruled_out(advice: Advice) -> list[tuple[str, str]]:
    """Filesystems that another one beats, and those that lose synced files, with the reason."""
    found: list[tuple[str, str]] = []
    sensible, unsafe = {one.label for one in advice.sensible}, {one.label for one in advice.unsafe}
    for one in advice.ranked:
        told = [_losing(one)] if one.label in unsafe else []
        if one.label not in sensible:
            better = {axis: advice.less(axis, one.label) for axis in DECISIVE}
            told.append(f"beaten in {'; '.join(f'{axis}: {_listed(by)}' for axis, by in better.items() if by)}")
        if told:
            found.append((one.label, "; ".join(told)))
    return found


def relations(advice: Advice) -> list[tuple[str, str]]:
    """For each axis, which filesystem is less, which are equal, and what would decide the rest."""
    found: list[tuple[str, str]] = []
    for axis in Axis:
        here = [one for one in advice.relations if one.axis is axis]
        if here:
            found.append((axis.value, "; ".join(_relations(here, advice))))
    return found


def _relations(here: Sequence[Relation], advice: Advice) -> Iterable[str]:
    less: dict[str, list[str]] = {}
    for one in here:
        if one.less is not None:
            less.setdefault(one.less, []).append(f"{_other(one)} ({_share(one)})" if _share(one) else _other(one))
    for label, others in sorted(less.items(), key=lambda item: -len(item[1])):
        yield f"{label} is less than {_listed(others)}"
    if same := [f"{one.one} and {one.other}" for one in here if one.same]:
        yield f"equal within {100 * advice.rule.equal_within:g} %: {_pairs(same)}"
    if rest := [one for one in here if one.less is None and not one.same]:
        pairs = [f"{one.one} and {one.other}" for one in rest]
        yield f"not yet decided: {'all' if len(rest) == len(here) > 1 else _pairs(pairs)}{_more(rest)}"


def _other(one: Relation) -> str:
    return one.other if one.less == one.one else one.one


def _share(one: Relation) -> str:
    """By how much it is less."""
    if one.ratio is None:
        return ""
    return percent(1 - (one.ratio if one.less == one.other else 1 / one.ratio))


def _more(here: Sequence[Relation]) -> str:
    """How many boots or cuts would decide all of these, if that is known and not too many."""
    needed = [one.more for one in here]
    most = max(each or _MOST_ADVISED + 1 for each in needed)
    what = "boot" if here[0].axis in PAIRED else "cut"
    return f" ({counted(most, f'more {what}')} of each)" if most <= _MOST_ADVISED else ""


def missing(advice: Advice) -> list[tuple[str, str]]:
    """What was not measured, with the command that measures it; empty if nothing is missing."""
    slugs = dict.fromkeys(slug for one in advice.figures for slug in one.missing)
    if not slugs:
        return []
    found = advice.evidence
    profile = advice.profile_name if advice.profile_name in profile_names() else "FILE"
    words = ["fsjoule", "advise", "--profile", profile, "--lg-env", found.environment or "FILE"]
    words += ["--fs", ",".join(dict.fromkeys(one.filesystem.name for one in advice.figures))]
    words += [] if found.storage == CARD else ["--storage", found.storage]
    return [(", ".join(slugs), shlex.join(words))]


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
    if found.guest_time:
        told.append(
            "energy has a projected card in it; there is no wait, because single requests are not projected: a board "
            "in real time measures it"
        )
    if found.no_cuts and profile.power_cuts_per_year:
        told.append(f"files lost are not measured: {found.no_cuts}")
    told += _wear_notes(advice)
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


def _wear_notes(advice: Advice) -> list[str]:
    told: list[str] = []
    if any(one.filesystem.flash_mib for one in advice.figures):
        erasures = f"{advice.profile.flash_erasures:,.0f}"
        told.append(
            f"raw flash: written means erased. A block is taken to endure {erasures} erasures. UBI spreads them up to "
            "4,096; jffs2 by chance, so that it may die sooner"
        )
    if any(one.written_mib and not one.filesystem.flash_mib for one in advice.figures):
        told.append(
            "years: of the bytes that the device was told to write. What its flash writes beyond them is not known: no "
            "health registers were read. So the card may wear out sooner"
        )
    return told


def rules(advice: Advice) -> str:
    rule, criteria = advice.rule, advice.criteria
    wait = "; wait: the longest p99 of what the profile does"
    cuts = (
        f"; files lost: of all power cuts, with the 95 % bounds of Hoeffding, a rank test at {100 * criteria.alpha:g} %"
    )
    return (
        "figures: means over boots with their 95 % interval, the meter's uncertainty included; less: at most "
        f"{100 * rule.false_discoveries:g} % of what is said is false, over all pairs and figures together (e-values, "
        f"e-BH); equal: a difference of {100 * rule.equal_within:g} % is excluded"
        f"{wait * any(one.wait_s for one in advice.figures)}{cuts * any(one.losses for one in advice.figures)} "
        "(docs/advice.md)"
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
