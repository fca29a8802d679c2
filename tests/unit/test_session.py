"""What surrounds a run: what began before it, and what is left to be taken down after it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fsjoule.runs import session
from fsjoule.runs.request import choose
from fsjoule.runs.session import Session
from fsjoule.virtual.lab.files import LabPaths
from fsjoule.virtual.lab.lab import LabHandle

_PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("started", "counts"),
    [
        ("{:.9f}", True),
        ("{:.0f}", True),
        ("9{:.0f}", False),
        ("abc", False),
        ("nan", False),
        ("-inf", False),
        ("", False),
    ],
)
def test_makes_own_set_up_counts_once(started: str, *, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_SETUP_STARTED", started.format(time.time() - 60))
    assert (59 < session._make_setup_s() < 3600) == counts
    assert session._make_setup_s() == 0


def test_a_lab_that_cannot_be_taken_down_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    said: list[str] = []
    opened = Session(
        choose(
            suite_name="quick",
            filesystems=None,
            kernels="6.1",
            repeat=None,
            provision=None,
            results=tmp_path / "results",
            seed=1,
        ),
        _PROJECT / "env" / "virtual.yaml",
        said.append,
        (),
    )
    opened._lab = LabHandle("virtual", "1", tmp_path, "virtual", {}, started=True)
    paths = LabPaths.of("virtual")
    paths.make()
    with paths.lock("somebody looks at it"):
        opened.close()
    assert said[0] == "virtual lab: going down"
    assert said[1].startswith("warning: the virtual lab could not be taken down: the lab 'virtual' is just being")
    assert len(said) == 2
    assert "LG_PLACE" not in os.environ
