"""A run that was aborted goes on in its own folder: what it has is kept, what it lacks is measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from fake_bench import AFTER, COUNTERS, FACTS, FIO_JSON, IMAGE, PROFILE, answer
from results_factory import KERNEL, LAB
from traces import INFO, trace_of

from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.run import BoardBench
from fsjoule.errors import ConfigError, InstrumentError, LabError, ResultError
from fsjoule.lab import EnvironmentFile, PlaceRequest, place_request
from fsjoule.model import BoardFacts, Exporter, Measurement, Plan, Planned, Run, RunStatus
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose
from fsjoule.runs.resume import Resumed, resume
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run
from fsjoule.store.schemas import RUN, encode
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

_KERNEL = dataclasses.replace(KERNEL, release=FACTS.kernel_release)
_COMMAND = ("pytest", "tests/bench", "--suite", "quick")


def new_run() -> Run:
    entries = plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=3, seed=3)).entries
    return Run(
        "id",
        "1970-01-01T00:00:00Z",
        RunStatus.RUNNING,
        simulated=True,
        plan=Plan("quick", ("ext4",), ("6.1",), 3, 3, {}, entries),
        kernels=(_KERNEL,),
        versions={"qemu": "7.2", "commit": "c0ffee"},
        command=_COMMAND,
    )


def bench_in(
    store: RunFolder,
    run: Run,
    *,
    facts: BoardFacts = FACTS,
    kept: tuple[Measurement, ...] = (),
    meter: FakeMeter | None = None,
    again: frozenset[int] = frozenset(),
) -> BoardBench:
    files = {
        onboard.RESULT: FIO_JSON,
        onboard.BEFORE: COUNTERS,
        onboard.AFTER: AFTER,
        onboard.DURATION: b"1.00 1.02 1.02 1\n0m0.0s 0m0.0s\n0m0.01s 0m0.01s\n",
    }
    board = FakeBoard(FakeShell(answer, files), facts, IMAGE)
    meter = meter or FakeMeter(None)
    profile = dataclasses.replace(PROFILE, guest_time=bool(again))
    bench = BoardBench(run, profile, board, meter, store, FakeClock(), lambda _: None, kept, again)
    bench.begin()
    return bench


@pytest.fixture
def aborted(tmp_path: Path) -> Path:
    """A run that was interrupted in the midst of its second repetition, after `taken` measurements."""
    store = RunFolder(tmp_path / "results")
    bench = bench_in(store, new_run())
    for entry in bench.plan.entries[: taken(bench.plan)]:
        bench.measure(entry)
    bench.finish("interrupted")
    return store.path


def taken(plan: Plan) -> int:
    return len(plan.entries) // 3 + 2


def gone_on(resumed: Resumed, *, facts: BoardFacts = FACTS, meter: FakeMeter | None = None) -> BoardBench:
    run = resumed.going_on("1970-01-01T08:00:00Z", resumed.run.plan)
    return bench_in(resumed.folder(), run, facts=facts, kept=resumed.kept, meter=meter)


def contents(path: Path) -> dict[str, str]:
    files = (file for file in (path / "measurements").rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_what_is_missing_is_measured_into_the_same_folder(aborted: Path) -> None:
    before, resumed = contents(aborted), resume(aborted)
    bench = gone_on(resumed)
    for entry in bench.plan.entries:
        assert bench.measure(entry).number == entry.number
    bench.finish()
    loaded = load_run(aborted)
    run = loaded.run
    assert (run.status, run.abort_reason, run.plan.seed) == (RunStatus.COMPLETE, None, 3)
    assert run.resumed_utc == ("1970-01-01T08:00:00Z",)
    assert [each.number for each in loaded.measurements] == [entry.number for entry in run.plan.entries]
    assert len(run.measurements) == len(run.plan.entries)
    after = contents(aborted)
    assert {name: after[name] for name in before} == before
    assert run.phases_s["board_on"] > resumed.run.phases_s["board_on"]


def test_a_repetition_that_was_cut_has_two_boots(aborted: Path) -> None:
    resumed = resume(aborted)
    bench = gone_on(resumed)
    for entry in bench.plan.entries:
        bench.measure(entry)
    boots: dict[int, set[int]] = {}
    for each in bench.results:
        boots.setdefault(each.repetition, set()).add(each.boot)
    first, cut, last = (boots[repetition] for repetition in (1, 2, 3))
    assert len(cut) > len(first) == len(last)
    assert not last & (first | cut)


def test_in_guest_time_a_repetition_that_was_cut_is_made_again_whole(aborted: Path) -> None:
    resumed = resume(aborted)
    entries = resumed.run.plan.entries
    again = frozenset(each.number for each in resumed.kept if each.repetition == 2)
    assert again
    folder = resumed.folder()
    run = resumed.going_on("1970-01-01T08:00:00Z", resumed.run.plan)
    bench = bench_in(folder, run, kept=resumed.kept, again=again)
    for entry in entries:
        bench.measure(entry)
        there = load_run(aborted)
        assert not there.damaged
        of_cut = [each for each in there.measurements if each.repetition == 2]
        assert len(of_cut) >= len(again), "never less than before"
        assert len({each.boot for each in of_cut}) == 1, "and never of two boots"
    bench.finish()
    loaded = load_run(aborted)
    assert loaded.run.status is RunStatus.COMPLETE
    assert [each.number for each in loaded.measurements] == [entry.number for entry in entries]
    assert [each.number for each in bench.results[: len(resumed.kept) - len(again)]] == list(range(1, 9))


def test_what_is_kept_costs_no_boot(aborted: Path) -> None:
    bench = gone_on(resume(aborted))
    for entry in bench.plan.entries[: taken(bench.plan)]:
        bench.measure(entry)
    assert isinstance(bench.board, FakeBoard)
    assert not bench.board.boots


def test_a_run_can_be_aborted_again_and_again(aborted: Path) -> None:
    for hour in (8, 9):
        resumed = resume(aborted)
        bench = bench_in(
            resumed.folder(), resumed.going_on(f"2026-03-09T{hour:02d}:00:00Z", resumed.run.plan), kept=resumed.kept
        )
        bench.measure(bench.plan.entries[len(resumed.kept)])
        bench.finish("interrupted")
    loaded = load_run(aborted)
    assert loaded.run.resumed_utc == ("2026-03-09T08:00:00Z", "2026-03-09T09:00:00Z")
    assert len(loaded.measurements) == taken(loaded.run.plan) + 2


def test_another_board_is_refused(aborted: Path) -> None:
    other = dataclasses.replace(FACTS, cpu="another", root_filesystem="btrfs", memory_bytes=FACTS.memory_bytes - 4096)
    bench = gone_on(resume(aborted), facts=other)
    with pytest.raises(LabError, match=r"not the board of the run: cpu was c, it is another now\n"):
        bench.measure(bench.plan.entries[-1])


def test_another_meter_is_refused_before_anything_is_written(aborted: Path) -> None:
    then = dataclasses.replace(load_run(aborted).run, meter=INFO)
    (aborted / "run.json").write_bytes(encode(RUN, then, "the run"))
    before = (aborted / "run.json").read_bytes()
    for now, words in (("u", "serial was t, it is u now"), ("t", "rate was 1000 samples/s, it is 500 samples/s now")):
        other = dataclasses.replace(INFO, serial_number=now, rate_hz=1000 if now == "u" else 500)
        with pytest.raises(InstrumentError, match=words):
            gone_on(resume(aborted), meter=FakeMeter(trace_of([2500] * 20, info=other)))
        assert (aborted / "run.json").read_bytes() == before
    gone_on(resume(aborted), meter=FakeMeter(trace_of([2500] * 20)))
    gone_on(resume(aborted), meter=FakeMeter(None))


def test_another_place_is_refused_with_what_differs(aborted: Path, said: list[str]) -> None:
    then = dataclasses.replace(load_run(aborted).run, lab=LAB)
    resumed = dataclasses.replace(resume(aborted), run=then)
    moved = dataclasses.replace(LAB, coordinator="elsewhere:1", user="b@c", meter=None)
    resumed.check_lab(moved)
    # Tags choose no other place than the run's.
    pool = EnvironmentFile(Path("board.yaml"), PROFILE, None, wanted=place_request("soc=imx6ul", "1h", None))
    assert resumed.where_it_began(pool).wanted.tags == (("soc", "imx6ul"), ("name", "virtual"))
    assert resumed.where_it_began(pool).wanted.wait_s == 3600
    named = dataclasses.replace(pool, wanted=PlaceRequest())
    assert resumed.where_it_began(named) == named
    assert not said
    for now, words in (
        (dataclasses.replace(LAB, place="other"), "the place was virtual, it is other now"),
        (
            dataclasses.replace(LAB, exporters=(Exporter("rack3", "rack3.lab"),)),
            "its exporter was fsjoule-virtual on 127.0.0.1, it is rack3 on rack3.lab now",
        ),
        (None, "the place was virtual, it is none now; its exporter was .*, it is none now"),
    ):
        with pytest.raises(ConfigError, match=words + r"\n  hint: go on where it began") as caught:
            resumed.check_lab(now)
        assert caught.value.exit_code == 2


def test_boards_in_guest_time_on_the_same_emulator_are_alike_in_whichever_lab(aborted: Path) -> None:
    then = dataclasses.replace(load_run(aborted).run, lab=LAB)
    second = dataclasses.replace(LAB, exporters=(Exporter("fsjoule-virtual-2", "127.0.0.1"),))
    dataclasses.replace(resume(aborted), run=then).check_lab(second, emulated=True)
    elsewhere = dataclasses.replace(then, versions={"fsjoule": "0.1.0"})
    with pytest.raises(ConfigError, match="its exporter was fsjoule-virtual on"):
        dataclasses.replace(resume(aborted), run=elsewhere).check_lab(second, emulated=True)


def test_a_run_that_does_not_say_where_it_was_goes_on_with_a_note(aborted: Path, said: list[str]) -> None:
    file = aborted / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "lab": None}))
    resume(aborted).check_lab(LAB)
    assert said == [f"{aborted} does not say in which lab it began, so the lab is not checked"]


def test_what_was_cut_short_while_it_was_written_is_measured_again(aborted: Path) -> None:
    last = max((aborted / "measurements").iterdir())
    last.rename(last.with_name(last.name + ".partial"))
    resumed = resume(aborted)
    bench = gone_on(resumed)
    assert len(resumed.kept) == taken(bench.plan) - 1
    bench.measure(bench.plan.entries[len(resumed.kept)])
    assert last.is_dir()
    assert not list(aborted.rglob("*.partial"))


def test_a_damaged_measurement_is_not_overwritten(aborted: Path) -> None:
    damaged = min((aborted / "measurements").iterdir())
    (damaged / "measurement.json").write_text("{")
    with pytest.raises(ResultError, match=f"damaged measurements: {damaged.name}: .*not JSON"):
        resume(aborted)
    damaged.rename(aborted.parent / "elsewhere")
    assert len(resume(aborted).kept) == taken(new_run().plan) - 1


def test_only_what_has_not_ended_can_go_on(aborted: Path) -> None:
    bench = gone_on(resume(aborted))
    with pytest.raises(ResultError, match="is being measured right now"):
        resume(aborted)
    for entry in bench.plan.entries:
        bench.measure(entry)
    bench.finish()
    with pytest.raises(ResultError, match="is complete"):
        resume(aborted)


def test_a_run_that_was_killed_can_go_on(aborted: Path) -> None:
    file = aborted / "run.json"
    stored = json.loads(file.read_text())
    file.write_text(json.dumps({**stored, "status": "running", "abort_reason": None, "finished_utc": None}))
    (aborted / "measurements" / "notes.txt").write_text("not a measurement")
    resumed = resume(aborted)
    bench = gone_on(resumed)
    assert len(resumed.kept) == taken(bench.plan)
    for entry in bench.plan.entries:
        bench.measure(entry)
    bench.finish()
    assert load_run(aborted).run.status is RunStatus.COMPLETE


def test_two_cannot_go_on_with_one_run(aborted: Path) -> None:
    first, second = resume(aborted), resume(aborted)
    bench = gone_on(first)
    with pytest.raises(ResultError, match="is being measured right now"):
        second.folder()
    bench.measure(bench.plan.entries[-1])
    bench.finish("interrupted")
    with pytest.raises(ResultError, match="was changed meanwhile"):
        second.folder()


def test_a_run_of_the_gate_cannot_go_on(tmp_path: Path) -> None:
    store = RunFolder(tmp_path)
    run = dataclasses.replace(new_run(), command=("fsjoule", "gate", "--tree", "linux"))
    bench_in(store, run).finish("interrupted")
    with pytest.raises(ResultError, match="was measured by `fsjoule gate`"):
        resume(store.path)


def test_options_that_agree_are_taken(aborted: Path) -> None:
    given = BenchOptions(suite="quick", fs="ext4, ext4", kernel="6.1", repeat=3, provision="scratch")
    choice = choose(dataclasses.replace(given, resume=aborted, results=aborted.parent))
    assert (choice.suite.name, choice.filesystems, choice.kernels) == ("quick", ("ext4",), ("6.1",))
    assert (choice.repeat, choice.seed, choice.results) == (3, 3, aborted.parent)


def test_a_boot_is_on_no_other_storage_than_the_run(aborted: Path) -> None:
    resumed = resume(aborted)
    entries = tuple(
        e if e.workload.is_boot else dataclasses.replace(e, storage="nvme") for e in resumed.run.plan.entries
    )
    plan = dataclasses.replace(resumed.run.plan, entries=entries)
    dataclasses.replace(resumed, run=dataclasses.replace(resumed.run, plan=plan)).check_options(
        {"--storage": ("nvme",)}
    )


def test_layers_are_named_as_they_were_or_with_the_device(aborted: Path) -> None:
    resumed = resume(aborted)
    entries = tuple(
        dataclasses.replace(each, storage=name)
        for each in resumed.run.plan.entries
        for name in ("card", "card+dm-crypt")
    )
    plan = dataclasses.replace(resumed.run.plan, entries=entries)
    layered = dataclasses.replace(resumed, run=dataclasses.replace(resumed.run, plan=plan))
    layered.check_options({"--storage": ("card",), "--stack": ("dm-crypt", "none")})
    layered.check_options({"--storage": ("card", "card+dm-crypt")})
    with pytest.raises(ConfigError, match="--stack dm-crypt was given, the run has dm-crypt,none"):
        layered.check_options({"--stack": ("dm-crypt",)})


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--suite", "operations", "--suite operations was given, the run has quick"),
        ("--fs", "ext4,btrfs", "--fs ext4,btrfs was given, the run has ext4"),
        ("--kernel", "6.12", "--kernel 6.12 was given, the run has 6.1"),
        ("--seed", 4, "--seed 4 was given, the run has 3"),
        ("--storage", "nvme,card", "--storage card,nvme was given, the run has card"),
        ("--stack", "dm-crypt", "--stack dm-crypt was given, the run has none"),
        ("--provision", "root", "--provision root was given, the run has "),
    ],
)
def test_options_that_contradict_the_run_are_refused(aborted: Path, option: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose(dataclasses.replace(BenchOptions(resume=aborted), **{option.removeprefix("--"): value}))


def test_what_is_not_as_it_was_is_named(aborted: Path) -> None:
    resumed = resume(aborted)
    resumed.check_board("fake", {"qemu": "7.2", "commit": "c0ffee", "branch": "topic"})
    # Another pipeline may go on with it.
    resumed.run.versions["pipeline"] = "100"
    resumed.check_board("fake", {"pipeline": "101"})
    resumed.check_kernels([_KERNEL])
    resumed.check_storages(["nvme"])
    resumed.check_images(resumed.run.images)
    with pytest.raises(ConfigError, match=r"the board was fake, it is other now; qemu was 7\.2, it is 9\.0 now"):
        resumed.check_board("other", {"qemu": "9.0"})
    with pytest.raises(
        ConfigError, match=r"the kernel 6\.1 was 6\.1 \(cdcdcdcdcdcd\), it is 6\.1 \(abababababab\) now"
    ):
        resumed.check_kernels([dataclasses.replace(_KERNEL, digest="ab" * 32)])
    # A build folder is called after its commit.
    with pytest.raises(ConfigError, match=r"the kernel 6\.1 was .*, v6\.1-3-gc0ffee is 6\.1 \("):
        resumed.check_kernels([dataclasses.replace(_KERNEL, label="v6.1-3-gc0ffee", digest="ab" * 32)])
    with pytest.raises(ConfigError, match=r"card with kernel 6\.1 and root ext4 is not the run's"):
        resumed.check_images([dataclasses.replace(image, card_sha256="1" * 64) for image in resumed.run.images])


def complete(aborted: Path) -> Path:
    bench = gone_on(resume(aborted))
    for entry in bench.plan.entries:
        bench.measure(entry)
    bench.finish()
    return aborted


def replanned(repeat: int, seed: int = 3) -> tuple[Planned, ...]:
    return plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=repeat, seed=seed)).entries


def test_a_complete_run_goes_on_with_more_repetitions(aborted: Path) -> None:
    path = complete(aborted)
    with pytest.raises(ResultError, match=r"is complete.*\n  hint: --repeat 7 adds boots"):
        resume(path)
    with pytest.raises(ResultError, match="is complete: it has 3 repetitions"):
        choose(BenchOptions(resume=path, repeat=3))
    choice = choose(BenchOptions(resume=path, repeat=5))
    assert (choice.repeat, choice.until_decided) == (5, False)
    assert choice.resumed is not None
    plan = choice.resumed.plan(5, lambda _storages: replanned(5))
    assert (plan.repeat, plan.entries) == (5, replanned(5))
    with pytest.raises(ConfigError, match="suite quick is planned differently now"):
        choice.resumed.plan(5, lambda _storages: replanned(5, seed=4))


def test_a_run_that_goes_on_keeps_what_it_has_measured(aborted: Path) -> None:
    assert choose(BenchOptions(resume=aborted, repeat=2)).repeat == 2
    with pytest.raises(ConfigError, match=r"--repeat 1: .* has measurements of 2 repetitions already"):
        choose(BenchOptions(resume=aborted, repeat=1))
    auto = choose(BenchOptions(resume=aborted, repeat="auto"))
    assert (auto.repeat, auto.until_decided) == (12, True)
