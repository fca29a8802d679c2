"""The check of a bench's words: what it says when nothing fails names no fault, whatever parts of the lab it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_factory import make_measurement, make_run

from faults.checks import code, message, told
from faults.kinds import KINDS
from fsjoule.meter.energy.validity import window_complaints
from fsjoule.model import RunStatus, Window
from fsjoule.store.reader import LoadedRun

# Of a bench with a lab of its own in which nothing failed, and of one that ended early.
_PROGRESS = """\
removing the leftovers of an earlier lab 'virtual'
starting coordinator, sshd, board, meter
starting exporter
lab is up after 2.1 s
============================= test session starts ==============================
platform linux -- Python 3.11.2, pytest-9.2.0, pluggy-1.7.0
rootdir: /home/ada/fsjoule
configfile: pyproject.toml
plugins: fsjoule-0.1.0, hypothesis-6.170.15, labgrid-26.0.1
collected 8 items / 5 deselected / 3 selected
place 'virtual' was left acquired by an earlier run and is taken over
place 'virtual' acquired
2 of 8 measurements are already there
results go to /tmp/campaign/010-{kind}/results/20261122T072550Z-virtual-4acc29490c
card: assembling 1024 MiB for kernel 6.1 and ext4
card: kernel 6.1, ext4: done in 5 s
card with kernel 6.1 and ext4 as its root
[  3/8] ext4 read-16k: 12.36 MiB/s, 1.345 W, 115.8 mJ/MiB (simulated)
[  5/8] ext4 mkfs: 0.359 s, 1.323 W, 487.8 mJ (simulated)
report: /tmp/campaign/010-{kind}/results/20261122T072550Z-virtual-4acc29490c/report.html
place 'virtual' released
                                                                         [100%]

==================================== ERRORS ====================================
_____________ ERROR at setup of test_measurement[04-r1-ext4-mkfs] ______________

self = <fsjoule.lab.lease.Lease object at 0x7fc2640da1d0>

        raise LabError(f"the lab's {kind} (process 17) was stopped; the cache cannot be written; No space left")

src/fsjoule/lab/place.py:192: in _connect_again

quick on virtual, kernel 6.1.0-50-armmp  simulated
3 of 8 measurements taken, 3 valid; 9192 of 9192 samples received, 0 missed, 0 lost
place virtual, exporter fsjoule-virtual; meter F10

Throughput and energy  simulated
                             throughput        power  energy     net
 operation    filesystem  n       MiB/s  IOPS      W  mJ/MiB  mJ/MiB  write ampl.
mean ± standard deviation of n valid repetitions; † some of them lack this figure; net: less idle power; files of 32
MiB; the meter's own uncertainty is up to 3.6 % (k=1)

Where the time went
 setup          3.2    7 %
board utilisation: board on for 43.8 s, measuring for 13 % of it
run folder  /tmp/campaign/010-{kind}/results/20261122T072550Z-virtual-4acc29490c
report      /tmp/campaign/010-{kind}/results/20261122T072550Z-virtual-4acc29490c/report.html
to measure the rest: pytest tests/bench --lg-env /tmp/campaign/010-{kind}/bench.yaml -p no:cacheprovider \
--meter-program /tmp/campaign/010-{kind}/meter-OTHER --resume /tmp/campaign/010-{kind}/results/20261122T072550Z
======================= 3 passed, 5 deselected in 54.00s =======================
virtual lab: going down
"""
# Lines of real benches, the console's left out.
_TELLING = {
    "qemu-kill": "ext4-mkfs: the board has stopped: QEMU (process 7) was killed by SIGKILL 21.6 s after power-on;"
    " its log is /a/qemu.log: the board does not answer any more: trying again",
    "qemu-stop": "ext4-mkfs: the board's QEMU (process 7) was stopped (SIGSTOP) and does nothing: trying again",
    "board-kill": "ext4-mkfs: the lab's board (process 7) was killed by SIGKILL; its log is /a/board.log: no login",
    "meter-kill": "no energy: the lab's meter (process 7) was killed by SIGKILL; its log is /a/meter.log: the meter"
    " sent no info (the other side has closed the connection)",
    "console-bridge-kill": "E       fsjoule.errors.BoardError: ser2net of the lab's exporter (process 10167) was killed"
    " by SIGKILL: the console's connection was lost after 0 s",
    "exporter-kill": "E       fsjoule.errors.LabError: the lab's exporter (process 7) was killed by SIGKILL; its log",
    "exporter-term": "ERROR: the lab's exporter was killed by SIGTERM",
    "coordinator-term": "ext4-mkfs: the lab's coordinator (process 22913) ended with exit code 0; its log is /a/c.log:"
    " it is not known whether the place 'virtual' is still ours: the labgrid coordinator at 127.0.0.1:1 cannot be"
    " reached",
    "supervisor-kill": "ext4-mkfs: the lab 'virtual' has ended: its supervisor was killed by SIGKILL, see /a: no login",
    "place-released": "! Interrupted: stopped: the place 'virtual' was taken away during the run: nobody has it",
    "cache-entry-garbled": "the cached card imx6ul-6.1-ext4 is damaged: entry.json is not a record of its content;"
    " building it again",
    "bench-term": "SIGTERM: ending; please wait until the board is off and the place is free",
    "stdout-full": "warning: the output cannot be written: No space left on device; all results are stored",
}


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.names])
def test_progress_alone_names_no_fault(kind: str) -> None:
    text = _PROGRESS.replace("{kind}", kind.rpartition("-")[0] or kind)
    [complaint] = message(text, 4, KINDS[kind].names)
    assert complaint.startswith("nothing in its output names the cause")
    assert message(text, 0, KINDS[kind].names, always=True) == [complaint]
    assert message(text, 0, KINDS[kind].names) == []


@pytest.mark.parametrize(("kind", "line"), _TELLING.items(), ids=_TELLING)
def test_a_line_that_tells_the_fault_names_it(kind: str, line: str) -> None:
    assert message(f"{_PROGRESS}{line}\n", 4, KINDS[kind].names) == []
    others = ("meter-stop", "exporter-stop", "board-stop", "sshd-stop", "database-stop")
    assert all(message(line, 4, KINDS[other].names) for other in others if other.partition("-")[0] not in kind)


def test_what_the_board_has_said_on_its_console_names_no_fault() -> None:
    line = "  console| the lab's meter (process 7) was stopped\nE     console| the lab's meter (process 7) was stopped"
    assert told(line) == ""


def test_a_second_try_may_be_invalid_because_of_a_late_mark_and_nothing_else() -> None:
    late = tuple(window_complaints(Window(0.0, 875e3), 0.942, 10.0))
    lost = ("5 of 90 samples were lost between meter and host",)
    assert code(1, frozenset(), _run(RunStatus.COMPLETE, late), must_succeed=True) == []
    for run in (_run(RunStatus.COMPLETE, lost), _run(RunStatus.COMPLETE, late + lost), _run(RunStatus.ABORTED, late)):
        assert code(1, frozenset(), run, must_succeed=True) == ["exit code 1: a second try should have made it"]
    assert code(4, frozenset(), _run(RunStatus.COMPLETE, late), must_succeed=True)


def _run(status: RunStatus, invalid: tuple[str, ...]) -> LoadedRun:
    made = make_run(status=status)
    measurement, _ = make_measurement(made.run.plan.entries[0], invalid=invalid)
    return LoadedRun(Path("run"), made.run, (measurement,), {}, {})
