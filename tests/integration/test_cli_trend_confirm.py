"""`fsjoule trend --confirm` over fakes of the ports: fresh boots show a change, refute it, or cannot tell."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from command_line import CommandLine
from fresh_boots import FreshBoots, kernel_folder, taken
from nights import Nights, debian, slower_at
from place_checks import PlaceNights
from profiles import profile_of
from results_factory import LAB

from fsjoule.filesystems import filesystem
from fsjoule.model import Exporter, IoPattern, KernelFacts, SeriesKey
from fsjoule.runs import confirm
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.states import kept_states

VIRTUAL = Path(__file__).parents[2] / "env" / "virtual.yaml"
RECIPE = "imx6ul"


@pytest.fixture
def run(fsjoule: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder of its own."""
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return fsjoule


def as_the_board_tells_it(series: SeriesKey) -> SeriesKey:
    """The series as a bench names it, for the workload of the suite."""
    made = filesystem(series.filesystem)
    return replace(
        series,
        make_options=made.make[1:],
        mount_options=made.mount_options,
        workload=f"{series.workload} 32768KiB",
    )


KERNELS = ("6.1.106", "6.1.107")


@dataclass
class History:
    """Nights with a loss from one kernel to the next, which are there to be booted again, and the boots themselves."""

    before: Path
    after: Path
    boots: FreshBoots


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of such nights, their index and the two kernels."""
    here = tmp_path_factory.mktemp("nights")
    there = {f"{name}-armmp": taken(_kernel(here, name), recipe=RECIPE).facts for name in KERNELS}

    def facts(label: str, release: str) -> KernelFacts:
        known = debian(label, release)
        return replace(there[known.release], label=label) if known.release in there else known

    nights = Nights(
        speed=slower_at(21),
        board="virtual",
        filesystems=("btrfs",),
        patterns=(IoPattern.RANDWRITE,),
        facts=facts,
        series=as_the_board_tells_it,
    )
    nights.write(here / "nights", 36)
    with open_index(here / "nights.sqlite", create=True) as index:
        import_runs(index, [here / "nights"])
    return here


def _kernel(here: Path, name: str) -> Path:
    return kernel_folder(here / "kernels" / name, f"{name}-armmp", recipe=RECIPE)


@pytest.fixture
def history(run: CommandLine, nights: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    assert run
    shutil.copy(nights / "nights.sqlite", ".")
    # An earlier test may have changed them.
    shutil.rmtree(nights / "kernels")
    boots = FreshBoots()
    # Session, which brings labgrid up, is replaced by a bench over fakes of the ports.
    monkeypatch.setattr(confirm, "measure_pairs", boots.measure_pairs)
    Path("policy.toml").write_text("[gate]\nbudget_pairs = 4\n")
    before, after = (_kernel(nights, name) for name in KERNELS)
    return History(before, after, boots)


@pytest.fixture
def in_guest_time(tmp_path: Path) -> Path:
    """The same board as one whose instructions can be counted."""
    text = VIRTUAL.read_text().replace("simulated: true", "simulated: true\n        guest_time: true")
    board = tmp_path / "guest.yaml"
    board.write_text(text)
    return board


def kept() -> list[tuple[str | None, str]]:
    """The metrics and states of changes that the index keeps."""
    with open_index("nights.sqlite") as opened:
        return [(each.metric, each.state.value) for each in kept_states(opened)]


CONFIRM = ("trend", "--index", "nights.sqlite", "--confirm", "--lg-env", VIRTUAL, "--policy", "policy.toml")


def test_boards_that_cannot_boot_at_once_are_refused_before_a_boot(run: CommandLine, history: History) -> None:
    together = run(*CONFIRM, "--boards", "2")
    assert (together.code, history.boots.choices) == (2, [])
    assert "only boards in guest time are brought up" in together.err
    alone = run("trend", "--index", "nights.sqlite", "--boards", "2")
    assert alone.code == 2
    assert "only --confirm takes --boards" in alone.err


def test_what_fresh_boots_show_too_is_confirmed_and_stays_so(run: CommandLine, history: History) -> None:
    history.boots.speeds = {"6.1.107": 0.93}
    done = run(*CONFIRM)
    assert done.code == 0, done.err
    # Both metrics share the boots of the two kernels.
    (choice,) = history.boots.choices
    assert (choice.filesystems, choice.kernels) == (("btrfs",), (str(history.before), str(history.after)))
    assert choice.storages == ("card",)
    assert "1 change suspected, 1 change confirmed" in done.out
    assert "confirmed in 3 pairs of fresh boots, -7.0 %, run fresh, wrong with at most 1 %" in done.out
    # The meter was silent: of the energy nothing is known.
    assert "fresh boots could not decide" in done.out
    assert len(list(Path("results/confirmations").glob("*.json"))) == 2
    assert kept() == [("throughput", "confirmed")]
    # The index made anew, nothing measured: it is still so.
    throughput = ("trend", "--index", "nights.sqlite", "--metric", "throughput")
    again = run(*throughput, "--by", "kernel")
    assert "\n1 change confirmed\n" in again.out
    assert "--confirm" not in again.out
    run(*CONFIRM, "--metric", "throughput")
    assert len(history.boots.choices) == 1


def test_a_place_that_is_out_of_control_is_told(run: CommandLine, history: History) -> None:
    history.boots.lab = replace(LAB, place="bench-3", exporters=(Exporter("rack", ""),))
    PlaceNights(gain=lambda night: 1.01 if night >= 40 else 1.0).write(Path("results"), 55)
    done = run(*CONFIRM, "--metric", "throughput")
    assert "both sides: place bench-3 was out of control from 2026-02-10 on: power of cpu +" in done.err


def test_what_a_step_of_the_clock_makes_is_not_confirmed(run: CommandLine, history: History) -> None:
    history.boots.runtime_ms = 14
    history.boots.speeds = {"6.1.107": 0.93}
    done = run(*CONFIRM, "--metric", "throughput")
    assert "1 change suspected" in done.out
    assert "fresh boots could not decide, in 3 pairs of fresh boots, -6.7 %, run fresh: hidden by steps of 7.1 %" in (
        " ".join(done.out.split())
    )
    assert kept() == []


def test_a_confirmed_change_is_explained_by_the_profiles_of_its_boots(
    run: CommandLine, history: History, in_guest_time: Path
) -> None:
    history.boots.speeds = {"6.1.107": 0.93}
    history.boots.profile = profile_of({0xBF000004: 100, 0xC0000004: 7})
    done = run(*CONFIRM, "--lg-env", in_guest_time, "--metric", "throughput", "--explain")
    assert done.code == 0, done.err
    assert history.boots.choices[0].profiled
    *_, told = done.out.partition("1 change confirmed")
    assert "btrfs randwrite-16k: 6.1.107 is busy for " in told
    assert "btrfs_read" in told
    assert kept() == [("throughput", "confirmed"), ("throughput", "explained")]
    assert "explain  fsjoule explain 6.1.106 6.1.107 --within results/" in done.err


def test_what_fresh_boots_refute_is_not_explained(run: CommandLine, history: History, in_guest_time: Path) -> None:
    done = run(*CONFIRM, "--lg-env", in_guest_time, "--metric", "throughput", "--explain")
    assert done.code == 0, done.err
    assert "busy for" not in done.out
    assert kept() == []
    assert "explain" not in done.err
    assert history.boots.choices
    refused = run(*CONFIRM, "--explain")
    assert refused.code == 2
    assert "is not in guest time" in refused.err


def test_what_fresh_boots_do_not_show_is_refuted(run: CommandLine, history: History) -> None:
    done = run(*CONFIRM, "--metric", "throughput")
    assert len(history.boots.choices) == 1
    assert "\n1 change refuted\n" in done.out
    assert "refuted in 3 pairs of fresh boots, +0.0 %" in done.out


def test_what_fresh_boots_cannot_decide_stays_nominated(run: CommandLine, history: History) -> None:
    done = run(*CONFIRM, "--metric", "energy")
    assert len(history.boots.choices) == 1
    assert "1 change suspected" in done.out
    assert "fresh boots could not decide" in done.out


def test_a_kernel_that_cannot_be_had_leaves_it_nominated(run: CommandLine, history: History) -> None:
    shutil.rmtree(history.before)
    done = run(*CONFIRM, "--metric", "throughput")
    assert done.code == 0
    assert not history.boots.choices
    assert re.search(r"kernel 6\.1\.106-armmp \(.*\) was not found again: there is no kernel at", done.err)
    assert str(history.before) in done.err
    assert "--tree" in done.err
    assert "1 change suspected" in done.out


def test_another_kernel_under_the_name_is_not_taken(run: CommandLine, history: History) -> None:
    (history.before / "zImage").write_text("built again, from other source")
    done = run(*CONFIRM, "--metric", "throughput")
    assert f"{history.before} is 6.1.106-armmp now" in done.err
    assert not history.boots.choices


def test_a_board_that_measures_other_series_is_refused(run: CommandLine, history: History) -> None:
    history.boots.storage = "another card"
    done = run(*CONFIRM, "--metric", "throughput")
    assert done.code == 2
    assert "storage was mmc1 QEMU! 1024 MiB, is another card" in done.err
    assert not Path("results/confirmations").exists()
