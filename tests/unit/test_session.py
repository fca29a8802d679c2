"""What surrounds a run: what began before it, and what is left to be taken down after it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fsjoule import lab
from fsjoule.runs import session, virtual
from fsjoule.virtual.lab.files import LabPaths


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
    paths = LabPaths.of("virtual")
    paths.make()
    with paths.lock("somebody looks at it"):
        virtual._take_down("virtual", "1", said.append)
    assert said[0] == "virtual lab: going down"
    assert said[1].startswith("warning: the virtual lab could not be taken down: the lab 'virtual' is just being")
    assert len(said) == 2


def test_variables_are_as_they_were_after_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "before")
    monkeypatch.delenv("LG_PLACE", raising=False)
    with pytest.raises(ZeroDivisionError), lab.variables({"LG_COORDINATOR": "body", "LG_PLACE": "virtual"}):  # noqa: PT012
        assert (os.environ["LG_COORDINATOR"], os.environ["LG_PLACE"]) == ("body", "virtual")
        _ = 1 / 0
    assert os.environ["LG_COORDINATOR"] == "before"
    assert "LG_PLACE" not in os.environ
