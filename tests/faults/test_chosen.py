"""A dozen faults that end a bench soon, for every check. The campaign has all kinds, at all moments: docs/faults.md."""

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
_CHOSEN = [
    ("board-kill", Phase.FLASH),
    ("exporter-kill", Phase.FLASH),
    ("coordinator-term", Phase.SET_UP),
    ("console-bridge-kill", Phase.BOOT),
    ("supervisor-kill", Phase.FLASH),
    ("bench-hup", Phase.FLASH),
    ("bench-term", Phase.SET_UP),
    ("place-taken", Phase.BOOT),
    ("results-full", Phase.BOOT),
    ("cache-full", Phase.BEFORE),
    ("database-kill", Phase.BEFORE),
]


@pytest.fixture(autouse=True)
def _signals_reach_the_bench() -> Generator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Where this program's parent ignores them, as a shell and nohup do, a bench would, too."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hang_up)


@pytest.mark.parametrize(("kind", "phase"), _CHOSEN, ids=[f"{kind}-{phase}" for kind, phase in _CHOSEN])
def test_a_fault_is_named_and_leaves_nothing(tmp_path: Path, kind: str, phase: Phase) -> None:
    outcome = inject(
        KINDS[kind], 1, _SEED, tmp_path / "fault", patience=_PATIENCE, phase=phase, next_bench=False, keep=True
    )
    assert outcome.fine, outcome.text()


def test_a_run_that_was_interrupted_five_times_goes_on(tmp_path: Path) -> None:
    """The next bench as well: the others leave it to the campaign."""
    outcome = inject(
        KINDS["ctrl-c-five-times"], 1, _SEED, tmp_path / "fault", patience=_PATIENCE, phase=Phase.BOOT, keep=True
    )
    assert outcome.fine, outcome.text()
    assert outcome.resumed
