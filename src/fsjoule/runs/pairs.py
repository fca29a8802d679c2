"""Pairs of boots: a baseline and a candidate boot in turn until whoever looks at the figures has seen enough.

`measure_pairs` does it on the board of an environment file, into an ordinary run folder; `run_pairs` is the loop
itself, over a bench.

Both boots of a pair share their seed (`suites.repetition_seed`): workloads come in the same order, with the same random
offsets, so that what these do to a figure meets both sides alike. The next pair has another seed, so that what is one
seed's is not taken for the kernel's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.bench.run import Bench
from fsjoule.errors import LabError
from fsjoule.host import interrupts
from fsjoule.kernels import TakenKernel
from fsjoule.model import Measurement, Planned, Provision
from fsjoule.model.metrics import Figure, figure_of, metrics_of
from fsjoule.runs.request import Choice
from fsjoule.runs.session import Session
from fsjoule.statistics.order import Turn
from fsjoule.store.index.serieskeys import IndexedSeries
from fsjoule.verdicts.pairs import Enough, Pair, Test

# A side whose boots fail this often in a row has something that more boots do not mend.
_FAILURES_IN_A_ROW: Final = 2


@dataclass(frozen=True, slots=True)
class PairedRun:
    """What was measured: the run folder, and why it ended."""

    folder: Path
    pairs: int
    ended: str


def measure_pairs(
    choice: Choice,
    environment: lab.EnvironmentFile,
    *,
    taken: tuple[TakenKernel, ...] = (),
    enough: Enough,
    say: Callable[[str], None],
    command: tuple[str, ...],
) -> PairedRun:
    """Measure pairs of boots of the two kernels of a paired choice, at most `choice.repeat`.

    `taken` are those kernels, if they have been taken already. The board's place is held meanwhile; the board is off
    afterwards and the lab down if it was brought up for this, however it ends. After Ctrl-C, SIGTERM or SIGHUP the run
    folder says that it was interrupted, and KeyboardInterrupt is raised.
    Raises ConfigError, and LabError when the lab does not do its part for either side twice in a row.
    """
    session = Session(choice, environment, say, command, taken=taken)
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        closing.enter_context(redirect_stdout(sys.stderr))  # labgrid shows what its tools say
        closing.callback(session.close)
        session.open()
        closing.enter_context(session.lab.place())
        with interrupts.interruptible():
            target = closing.enter_context(lab.labgrid_target(environment.path))
        bench = closing.enter_context(session.run(target))
        session.expected = len(session.plan.entries)
        with interrupts.interruptible():
            pairs, ended = run_pairs(bench, enough)
            session.ended_early = ended
        folder = session.folder
    assert folder is not None, "session.run has made one"
    return PairedRun(folder, pairs, ended)


def run_pairs(bench: Bench, enough: Enough) -> tuple[int, str]:
    """Measure the bench's plan pair by pair; returns how many pairs there were and why there are no more.

    A fault of the lab costs the figures of that boot that are not there yet. Raises LabError if it comes twice in a row
    on one side, and at once if it ends the run.
    """
    baseline, candidate = bench.plan.kernels
    side = {baseline: Turn.BASELINE, candidate: Turn.CANDIDATE}
    series = len({entry.slug for entry in bench.plan.entries})
    failures = Counter[Turn]()
    number = 0
    for number, entries in groupby(bench.plan.entries, key=lambda entry: entry.repetition):
        measured: dict[Turn, list[Measurement]] = {each: [] for each in Turn}
        faults: list[str] = []
        for (label, _), boot in groupby(entries, key=_boot_of):
            which = side[label]
            bench.say(f"pair {number} of at most {bench.plan.repeat}: {which}, kernel {label}")
            fault = _measure_boot(bench, boot, measured[which])
            failures[which] = 0 if fault is None else failures[which] + 1
            if fault is None:
                continue
            faults.append(f"{which} {number}: {fault.what.splitlines()[0]}")
            if failures[which] >= _FAILURES_IN_A_ROW:
                raise LabError(
                    f"the {which}, kernel {label}, failed {failures[which]} times in a row: {fault.what}",
                    hint=fault.hint,
                ) from fault
        reason = enough(Pair(number, _paired(measured), series, tuple(faults)))
        if reason is not None:
            return number, f"{reason} after {number} pairs"
    return number, f"the budget of {number} pairs was used up"


def _boot_of(entry: Planned) -> tuple[str, str]:
    return entry.kernel, entry.filesystem if entry.provision is Provision.ROOT else ""


def _measure_boot(bench: Bench, entries: Iterable[Planned], into: list[Measurement]) -> LabError | None:
    """Measure what is planned for one boot; the fault that ended it, if one did."""
    fault: LabError | None = None
    for entry in entries:  # to the end in any case: they come from a groupby
        if fault is not None:
            continue
        try:
            into.append(bench.measure(entry))
        except LabError as error:
            if error.ends_run:
                raise
            bench.say(f"{entry.slug}: {error}")
            fault = error
    return fault


def _paired(measured: Mapping[Turn, Sequence[Measurement]]) -> dict[Test, tuple[Figure, Figure]]:
    """The figures of both sides by what is tested, of all that either of them has."""
    baseline, candidate = (figures_by_test(measured[side]) for side in Turn)
    return {test: (baseline.get(test), candidate.get(test)) for test in {**baseline, **candidate}}


def figures_by_test(measurements: Iterable[Measurement]) -> dict[Test, Figure]:
    """The figures of one boot, None for those that are missing or not to be believed."""
    return {
        (IndexedSeries(each.series, each.simulated), metric): figure_of(each, metric) if each.valid else None
        for each in measurements
        for metric in metrics_of(each.workload)
    }
