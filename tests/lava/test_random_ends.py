"""Jobs of the server are ended at random moments: the board is off, its place free, nothing is left.

The next job that measures goes on with the run of the one before it, until that has little left.
`make test-lava N=20 SEED=7` ends so many jobs; without N it is one in each way. The seed decides order, kind of job and
moment.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest
from lava_place import FREE_WITHIN_S, LIMIT_S, LavaPlace
from lava_server import DEVICE, Server
from waiting import wait_for

from fsjoule.host.process_ref import ProcessRef, descendants
from fsjoule.model import RunStatus
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.virtual.lab.files import LabPaths

HOLDER = f"{os.uname().nodename}/lava"


class Way(StrEnum):
    CANCEL = "cancel through the server"
    TERM = "SIGTERM of lava-run"
    KILL = "SIGKILL of lava-run"


class Phase(StrEnum):
    MEASURING = "measuring"
    FLASHING = "flashing"
    BOOTING = "booting"


# How long a phase is on a quiet machine; of measuring, a part.
SPAN_S: Final = {Phase.FLASHING: 3.0, Phase.BOOTING: 15.0, Phase.MEASURING: 20.0}
# Entries that a job has left to measure when it begins: none of them ends before it is ended.
ENOUGH: Final = 5
# The board's shell starts fio so.
WORKLOAD: Final = b"fio --output="
# The word by which a card's writer is known among all processes of the exporter.
WRITER: Final = b"\0fsjoule-writes:"
SEED: Final = int(os.environ.get("SEED") or secrets.randbits(32))
COUNT: Final = int(os.environ.get("ENDS") or 0) or len(Way)


def chosen(number: int) -> tuple[Way, Phase]:
    """Each way, then each way with the phases moved on by one, and so on."""
    ways, phases = list(Way), list(Phase)
    return ways[number % 3], phases[(number + number // 3) % 3]


CHOSEN: Final = random.Random(SEED).sample([chosen(number) for number in range(COUNT)], COUNT)


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_a_job_that_is_ended_at_a_random_moment_leaves_nothing_and_the_next_one_goes_on(
    number: int, lava: Server, place: LavaPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    way, phase = CHOSEN[number - 1]
    rng = random.Random(f"{SEED} {number}")
    smoke = phase is not Phase.MEASURING and rng.random() < 0.5
    into_s = rng.uniform(0.0, SPAN_S[phase])
    before = None if smoke else aborted(place)
    known = runs(place)
    job = lava.submit(smoke_job(place) if smoke else suite_job(place, before))
    try:
        wait_for(in_phase(place, phase), lambda: lava.log(job)[-3000:], LIMIT_S)
        time.sleep(into_s)
        assert lava.job(job)["state"] == "Running"
        holder, power = place.state()
        assert holder == HOLDER
        lava_run = lava_run_of(job)
    except BaseException:
        lava.cancel(job)  # the next test's phase is to be that of its own job
        lava.wait(job)
        raise
    begin_s = time.monotonic()
    if way is Way.CANCEL:
        lava.cancel(job)
    else:
        lava_run.send(signal.SIGTERM if way is Way.TERM else signal.SIGKILL)
    wait_for(lambda: place.state() == (None, "off"), lambda: lava.log(job)[-3000:], FREE_WITHIN_S)
    free_s = time.monotonic() - begin_s
    place.assert_nothing_left()
    wait_for(lambda: not group(lava_run.pid), lambda: str(group(lava_run.pid)), FREE_WITHIN_S)
    gone_s = time.monotonic() - begin_s
    # A helper that was still at work has not switched it on again.
    assert place.state() == (None, "off")
    assert lava.wait(job)["health"] in ("Canceled", "Incomplete")
    told = "smoke job" if smoke else suite_told(place, before, known)
    with capsys.disabled():
        sys.stdout.write(
            f"\n[{number}/{COUNT}, seed {SEED}] {way}, {phase} and {into_s:.1f} s, board {power}: free after"
            f" {free_s:.0f} s, all gone after {gone_s:.0f} s; {told}; load {os.getloadavg()[0]:.0f}\n"
        )


def test_the_job_after_all_of_them_completes_the_last_aborted_run(lava: Server, place: LavaPlace) -> None:
    run = aborted(place)
    number = lava.submit(suite_job(place, run))
    assert lava.wait(number, limit_s=2 * LIMIT_S)["health"] == "Complete"
    whole = place.newest() if run is None else load_run(run.path)
    assert whole.run.status is RunStatus.COMPLETE
    assert len(whole.measurements) == len(whole.run.plan.entries)
    assert place.state() == (None, "off")
    place.assert_nothing_left()


def smoke_job(place: LavaPlace) -> str:
    return place.fsjoule("job", "--smoke", "--lg-env", place.lg_env)


def suite_job(place: LavaPlace, run: LoadedRun | None) -> str:
    """A job that measures, or goes on with a run."""
    return place.job(*(() if run is None else ("--", "--resume", str(run.path))))


def runs(place: LavaPlace) -> set[Path]:
    return set((place.folder / "results").glob("*/"))


def aborted(place: LavaPlace) -> LoadedRun | None:
    """The newest run, if it was aborted and has enough left for a job that is ended while it measures."""
    if not (found := runs(place)):
        return None
    run = load_run(max(found, key=lambda path: path.name))
    left = len(run.run.plan.entries) - len(run.measurements)
    return run if run.run.status is RunStatus.ABORTED and left >= ENOUGH else None


def suite_told(place: LavaPlace, before: LoadedRun | None, known: set[Path]) -> str:
    """What the ended job has left of its run, which may not have begun. Raises AssertionError if it lost anything."""
    if before is None:
        new = runs(place) - known
        if not new:
            return "no run had begun"
        [path] = new
        run = load_run(path)
    else:
        run = load_run(before.path)
        assert run.measurements[: len(before.measurements)] == before.measurements
        assert len(run.run.resumed_utc) == len(before.run.resumed_utc) + 1
    assert run.run.status is RunStatus.ABORTED
    times = f", resumed {len(run.run.resumed_utc)} times" if run.run.resumed_utc else ""
    return f"run {run.run.run_id}: {len(run.measurements)} of {len(run.run.plan.entries)} measured{times}"


def in_phase(place: LavaPlace, phase: Phase) -> Callable[[], bool]:
    """Whether the job that begins now is in that phase."""
    record = LabPaths.of(DEVICE).read()
    assert record is not None
    assert record.guardian is not None
    lab_pid, console = record.guardian.pid, LabPaths.of(DEVICE).log("console")
    size = console.stat().st_size if console.exists() else 0
    match phase:
        case Phase.FLASHING:
            return lambda: any(WRITER in command(each) for each in descendants(lab_pid))
        case Phase.BOOTING:
            return lambda: place.state() == (HOLDER, "on")
        case Phase.MEASURING:
            return lambda: console.exists() and WORKLOAD in console.read_bytes()[size:]


def command(found: ProcessRef) -> bytes:
    try:
        return Path(f"/proc/{found.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def lava_run_of(job: int) -> ProcessRef:
    """The job's lava-run. Its children may have its title, too: the sender of its log, programs that just start."""
    title = f"lava-run [job: {job}]".encode()
    return next(each for each in descendants(os.getpid()) if command(each).startswith(title))


def group(leader: int) -> list[ProcessRef]:
    """The living processes of a process group."""
    found: list[ProcessRef] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ProcessLookupError):
            if entry.name.isdecimal() and os.getpgid(int(entry.name)) == leader:
                found += [each for each in (ProcessRef.of(int(entry.name)),) if each is not None]
    return found
