"""A dozen faults that end a bench soon, for every check. The campaign has all kinds, at all moments: docs/faults.md.

Five are quick: a service, a signal, two disks, a database. What the others show is also shown without a whole bench.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from faults.kinds import KINDS
from faults.one import inject
from faults.watch import Phase

_SEED = 13
# These tests share the machine with others.
_PATIENCE = 4.0
_QUICK = [
    ("exporter-kill", Phase.FLASH),
    ("bench-term", Phase.SET_UP),
    ("results-full", Phase.BOOT),
    ("cache-full", Phase.BEFORE),
    ("database-kill", Phase.BEFORE),
]
_SLOW = [
    # test_lab_faults.py kills each service and both heads of a lab.
    ("board-kill", Phase.FLASH),
    ("coordinator-term", Phase.SET_UP),
    ("supervisor-kill", Phase.FLASH),
    ("console-bridge-kill", Phase.BOOT),
    # test_interrupted_runs.py
    ("bench-hup", Phase.FLASH),
    # test_place.py takes a bench's place away.
    ("place-taken", Phase.BOOT),
]
_CHOSEN = [
    *(pytest.param(*each, id="-".join(each)) for each in _QUICK),
    *(pytest.param(*each, id="-".join(each), marks=pytest.mark.slow) for each in _SLOW),
]


@pytest.fixture(autouse=True)
def _signals_reach_the_bench() -> Generator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Where this program's parent ignores them, as a shell and nohup do, a bench would, too."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hang_up)


@pytest.mark.parametrize(("kind", "phase"), _CHOSEN)
def test_a_fault_is_named_and_leaves_nothing(tmp_path: Path, kind: str, phase: Phase) -> None:
    outcome = inject(
        KINDS[kind], 1, _SEED, tmp_path / "fault", patience=_PATIENCE, phase=phase, next_bench=False, keep=True
    )
    assert outcome.fine, outcome.text()


@pytest.mark.slow
def test_a_run_that_was_interrupted_five_times_goes_on(tmp_path: Path) -> None:
    """The next bench as well: the others leave it to the campaign. test_bench.py goes on with a run, too."""
    outcome = inject(
        KINDS["ctrl-c-five-times"], 1, _SEED, tmp_path / "fault", patience=_PATIENCE, phase=Phase.BOOT, keep=True
    )
    assert outcome.fine, outcome.text()
    assert outcome.resumed
