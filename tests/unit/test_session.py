"""What surrounds a run: what began before it, and what is left to be taken down after it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import make_run

from fsjoule import lab
from fsjoule.errors import ConfigError
from fsjoule.model import Plan, Planned, Run, RunStatus
from fsjoule.runs import held_lab
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import RunPlan, make_setup_s
from fsjoule.runs.request import choose
from fsjoule.runs.resume import Resumed
from fsjoule.suites import Planning, plan_entries, suite


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
    assert (59 < make_setup_s() < 3600) == counts
    assert make_setup_s() == 0


def test_a_lab_that_cannot_be_taken_down_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    held_lab._take_down("No lab", "1")
    assert said[0] == "virtual lab: going down"
    assert said[1].startswith("warning: the virtual lab could not be taken down: ")
    assert len(said) == 2


def test_a_resumed_run_in_guest_time_makes_boots_that_were_cut_again_whole(tmp_path: Path) -> None:
    environment = lab.read_environment(Path(__file__).parents[2] / "env" / "deterministic.yaml")
    choice = choose(
        BenchOptions(suite="quick", fs="ext4", kernel="6.1", repeat=3, provision="scratch", results=tmp_path, seed=3),
        environment,
    )
    entries = plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=3, seed=3)).entries
    plan = Plan("quick", ("ext4",), ("6.1",), 3, 3, {}, entries)
    run = Run("id", "1970-01-01T00:00:00Z", RunStatus.ABORTED, simulated=True, plan=plan)
    first = [entry.number for entry in entries if entry.repetition == 1]
    cut = [entry.number for entry in entries if entry.repetition == 2][:3]
    template = make_run(repeat=1).measurements[0]
    kept = tuple(replace(template, number=number) for number in (*first, *cut))
    resumed = replace(choice, resumed=Resumed(tmp_path, run, kept))
    planned = RunPlan(resumed, environment, (), plan, entries, frozenset())
    chosen = planned.selecting(entry.number for entry in entries)
    assert [entry.number for entry in chosen.to_do] == [entry.number for entry in entries if entry.repetition > 1]
    assert planned.selecting([*first, *cut]).to_do == (), "of what is selected nothing is missing"
    with pytest.raises(ConfigError, match="-k leaves out what was measured in a boot that is made again whole: ext4-"):
        planned.selecting([cut[0], cut[-1] + 1])
    real = lab.read_environment(Path(__file__).parents[2] / "env" / "virtual.yaml")
    planned = RunPlan(resumed, real, (), plan, entries, frozenset())
    chosen = planned.selecting(entry.number for entry in entries)
    assert chosen.to_do == entries[len(kept) :], "in real time the repetition goes on in a second boot"


def test_a_run_is_extended_on_the_devices_that_can_be_planned(tmp_path: Path) -> None:
    entries = plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=2, seed=3)).entries
    begun = tuple(entry for entry in entries if entry.repetition == 1)
    run = Run(
        "id", "1970-01-01T00:00:00Z", RunStatus.ABORTED, True, Plan("quick", ("ext4",), ("6.1",), 1, 3, {}, begun)
    )

    def plan_on(*possible: tuple[str, ...] | None) -> Plan:
        def plan_again(storages: tuple[str, ...] | None) -> tuple[Planned, ...]:
            if storages not in possible:
                raise ConfigError(f"{storages} does not fit")
            return entries

        return Resumed(tmp_path, run, ()).plan(2, plan_again)

    assert plan_on(None).entries == plan_on(("card",)).entries == entries
    with pytest.raises(ConfigError, match=r"\('card',\) does not fit"):
        plan_on()


def test_variables_are_as_they_were_after_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "before")
    monkeypatch.delenv("LG_PLACE", raising=False)
    with pytest.raises(ZeroDivisionError), lab.variables({"LG_COORDINATOR": "body", "LG_PLACE": "virtual"}):  # noqa: PT012
        assert (os.environ["LG_COORDINATOR"], os.environ["LG_PLACE"]) == ("body", "virtual")
        _ = 1 / 0
    assert os.environ["LG_COORDINATOR"] == "before"
    assert "LG_PLACE" not in os.environ
