"""The states of an update on an emulated board with two slots and its real U-Boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_runs import BUILD_TIMEOUT_S, PROJECT, only_run, patient_environment, run_bench

from fsjoule.model import CrashFacts, CrashFate

pytestmark = pytest.mark.slow

ENVIRONMENT = PROJECT / "env" / "virtual-orangepi-ab.yaml"
RECIPE = "orangepi-ab"
COUNTS = "        setexpr BOOT_B_LEFT ${BOOT_B_LEFT} - 1\n"


def facts_of(folder: Path, state: str, recipe: str = RECIPE, **changed: object) -> tuple[CrashFacts, tuple[str, ...]]:
    """What a run of one state has found, and its notes."""
    results = folder / "results"
    arguments = ("--suite", "update-states", "--fs", "ext4", "--states", state)
    environment = patient_environment(results, ENVIRONMENT, **changed)
    environment.write_text(environment.read_text().replace(f"recipe: {RECIPE}", f"recipe: {recipe}"))
    done = run_bench(results, *arguments, environment=environment, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    [measurement] = only_run(results).measurements
    assert measurement.invalid_reasons == ()
    assert measurement.crash is not None
    return measurement.crash, measurement.notes


def test_an_update_that_was_cut_starts_the_old_version_and_is_repeated(tmp_path: Path) -> None:
    crash, notes = facts_of(tmp_path, "0.2:-")
    assert crash.writes > 160 * 2048, "all of the slot"
    assert crash.checked == {CrashFate.OK: 2}
    assert any("the update was repeated in 1 states" in note for note in notes)
    assert any("a new version that cannot be started: the old one was" in note for note in notes)


def test_a_boot_script_that_forgets_the_counter_is_caught(tmp_path: Path) -> None:
    script = (PROJECT / "images" / "slots" / "boot.cmd").read_text()
    assert COUNTS in script
    (tmp_path / "boot.cmd").write_text(script.replace(COUNTS, ""))
    recipe = (PROJECT / "images" / f"{RECIPE}.toml").read_text()
    own = tmp_path / "forgetful.toml"
    own.write_text(recipe.replace("slots/boot.cmd", "boot.cmd"))
    crash, _ = facts_of(tmp_path, "0.2:-", str(own), boot_timeout=120)
    assert crash.losses == 1
    assert "the new version cannot be started" in crash.cause
    assert "no login within 120 s" in crash.cause
