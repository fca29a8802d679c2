"""Why a figure changed: functions matched and grouped, read from a run folder, and told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import exact_profiles
import pytest
from command_line import CommandLine
from profiles import INSTRUCTION_NS, profile_of, symbols_of, write_profiled

from fsjoule.errors import ConfigError, ResultError
from fsjoule.model import Measurement, Symbols
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Where
from fsjoule.report.explanation import words
from fsjoule.report.explanation.section import draw
from fsjoule.report.explanation.text import to_folded
from fsjoule.runs.explain import explain_gated, explain_run
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.store.finding import Finding, Subject
from fsjoule.store.gate import Gated, GateSide, GateVerdict
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series, stats
from fsjoule.store.index.states import kept_states
from fsjoule.store.profiles import PROFILE_FILE, encode_profile
from fsjoule.store.reader import load_run
from fsjoule.store.states import ChangeState
from fsjoule.verdicts.explanation.changes import Explanation, FunctionChange, Presence, Windows, explain
from fsjoule.verdicts.explanation.functions import KERNEL, Function, base_name, executed, subsystems

PROJECT = Path(__file__).parents[2]
PROGRAM_PAGE = 77


def window(functions: Mapping[str, int], *, uncalled: tuple[str, ...] = (), program: int = 0) -> Windows:
    """One boot's window of 2 MiB; functions `module:name` by how many instructions they executed."""
    names = [*functions, *uncalled]
    at = {0xC0000000 + 0x100 * number: name for number, name in enumerate(names)}
    counts = {address + 8: functions[name] for address, name in at.items() if name in functions}
    profile = profile_of({**counts, 0x8000: program}, pages={0x8000: PROGRAM_PAGE})
    return Windows("x", [(executed(profile, symbols_of(at)), 2.0)])


def explained(baseline: Windows, candidate: Windows) -> Explanation:
    return explain(
        "btrfs read-16k", "MiB", replace(baseline, kernel="6.1"), replace(candidate, kernel="6.12"), simulated=True
    )


def found(explanation: Explanation, name: str) -> FunctionChange:
    (change,) = [each for each in explanation.functions if each.name == name]
    return change


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("foo", "foo"),
        ("foo.isra.0", "foo"),
        ("foo.constprop.0.isra.1", "foo"),
        ("foo.part.0.cold", "foo"),
        ("foo.llvm.1234", "foo"),
        ("foo.cold", "foo"),
        ("foo.colder", "foo.colder"),
        ("__kmalloc_noprof.isra.0", "__kmalloc"),
        (".isra", ".isra"),
    ],
)
def test_what_a_compiler_adds_to_a_name_is_no_part_of_it(name: str, base: str) -> None:
    assert base_name(name) == base


def test_clones_and_parts_are_one_function() -> None:
    made = explained(window({"foo": 10, "foo.cold": 2}), window({"foo.isra.0": 4, "foo.constprop.0": 20}))
    change = found(made, "foo")
    assert (change.baseline_ns, change.candidate_ns) == (12 * INSTRUCTION_NS / 2, 24 * INSTRUCTION_NS / 2)
    assert change.presence is Presence.BOTH
    assert words.remark(change, made) == "foo, foo.cold is foo.constprop.0, foo.isra.0 in 6.12"


@pytest.mark.parametrize(
    ("baseline", "candidate", "presence", "remark"),
    [
        (window({"foo": 1}), window({"foo": 5}), Presence.BOTH, ""),
        (window({"bar": 1}), window({"foo": 5}), Presence.NEW, "new in 6.12, or called otherwise in 6.1"),
        (
            window({"foo": 5}),
            window({"bar": 1}),
            Presence.GONE,
            "not in 6.12: removed, renamed, or inlined into its callers",
        ),
        (window({"bar": 1}, uncalled=("foo",)), window({"foo": 5}), Presence.CALLED_NOW, "not called in 6.1"),
        (window({"foo": 5}), window({"bar": 1}, uncalled=("foo",)), Presence.NOT_CALLED, "not called in 6.12"),
        (
            window({"foo": 5}),
            window({"foo.part.0": 1}),
            Presence.INLINED,
            "inlined into its callers in 6.12, but for foo.part.0",
        ),
        (
            window({"foo.cold": 1}),
            window({"foo": 5}),
            Presence.NOT_INLINED,
            "inlined into its callers in 6.1, but for foo.cold",
        ),
    ],
    ids=list(map(str, ["both", "new", "gone", "called", "uncalled", "inlined", "outlined"])),
)
def test_a_function_that_one_side_lacks_is_told_as_what_can_be_known(
    baseline: Windows, candidate: Windows, presence: Presence, remark: str
) -> None:
    made = explained(baseline, candidate)
    assert found(made, "foo").presence is presence
    assert words.remark(found(made, "foo"), made) == remark


def test_a_new_function_may_be_a_gone_one_of_its_folder_and_of_a_like_name() -> None:
    made = explained(window({"checksum_body": 10, "other": 3}), window({"checksums": 30, "anything": 3}))
    assert found(made, "checksums").perhaps == "checksum_body"
    assert found(made, "checksum_body").perhaps == "checksums"
    assert "perhaps checksum_body there, by its name" in words.remark(found(made, "checksums"), made)
    assert found(made, "other").perhaps is None
    # Of another folder it is another one.
    made = explained(window({"a:checksum_body": 10}), window({"b:checksums": 30}))
    assert found(made, "checksums").perhaps is None


def test_a_function_that_moved_from_a_module_is_one_row() -> None:
    made = explained(window({"crc:crc32c": 10, "btrfs:read": 1}), window({"crc32c": 30, "btrfs:read": 1}))
    change = found(made, "crc32c")
    assert (change.module, change.moved_from, change.difference_ns) == ("", "crc", 20 * INSTRUCTION_NS / 2)
    assert "in crc in 6.1" in words.remark(change, made)
    # Two of that name: nobody knows which of them it was.
    made = explained(window({"crc:crc32c": 10}), window({"crc32c": 30, "lib:crc32c": 30}))
    assert [each.moved_from for each in made.functions] == [None] * 3


def test_the_largest_differences_come_first_and_all_of_them_are_the_change() -> None:
    baseline = window({f"f{number}": 100 for number in range(20)} | {"btrfs:read": 1000}, program=50)
    candidate = window({f"f{number}": 100 + number for number in range(20)} | {"btrfs:read": 400}, program=60)
    made = explained(baseline, candidate)
    assert [each.name for each in made.functions[:3]] == ["read", "f19", "f18"]
    assert made.change_ns == pytest.approx(made.candidate.busy_ns - made.baseline.busy_ns)
    assert made.change_ns == pytest.approx((sum(range(20)) + 10 - 600) * INSTRUCTION_NS / 2)
    first_ten = -600 + sum(range(11, 20))
    assert made.explained() == pytest.approx(first_ten / (sum(range(20)) + 10 - 600))
    assert [(each.name, each.difference_ns) for each in made.modules] == [
        ("btrfs", -1200.0),
        ("", sum(range(20)) * 2.0),
        ("programs", 20.0),
    ]
    assert sum(each.difference_ns for each in made.subsystems) == pytest.approx(made.change_ns)
    assert words.because(made).startswith("the ten functions with the largest differences make ")
    many = explained(window(dict.fromkeys(map(str, range(99)), 100)), window(dict.fromkeys(map(str, range(99)), 101)))
    assert words.because(many).startswith("it is spread over many functions: the ten functions with")
    assert words.headline(made).startswith("btrfs read-16k: 6.12 is busy for ")


def test_boots_are_averaged_and_their_range_is_told() -> None:
    one, other = window({"foo": 100}), window({"foo": 102})
    made = explained(replace(one, windows=[*one.windows, *other.windows]), window({"foo": 101}))
    assert made.baseline.boots == 2
    assert made.baseline.spread == pytest.approx(2 / 101)
    assert made.candidate.spread is None
    assert made.change_ns == pytest.approx(0)
    assert words.because(explained(one, one)) == "every function takes the time that it took"


def test_all_instructions_are_counted_those_without_a_name_too() -> None:
    profile = profile_of({0x10: 1, 0xC0000008: 2, 0x8000: 4}, pages={0x8000: PROGRAM_PAGE})
    times = executed(profile, symbols_of({0xC0000000: "foo"})).times
    assert times == {
        Function("without a name"): 1 * INSTRUCTION_NS,
        Function("foo"): 2 * INSTRUCTION_NS,
        Function("other code of programs", "programs"): 4 * INSTRUCTION_NS,
    }
    assert sum(times.values()) == profile.sum_ns
    named = executed(profile, symbols_of({0xC0000000: "foo"}), {PROGRAM_PAGE: "fio"}).times
    assert named[Function("fio", "programs")] == 4 * INSTRUCTION_NS


def test_what_lies_between_functions_of_a_folder_is_of_that_folder() -> None:
    names = {
        1: "first",
        2: "vfs_read",
        3: "between",
        4: "vfs_write",
        5: "beyond",
        6: "proc_reg_read",
        7: "after",
        8: "submit_bio",
        9: "btrfs:vfs_read",
        10: "last",
    }
    symbols = replace(symbols_of(names), folders={"btrfs": "fs/btrfs"})
    assert subsystems(symbols) == [KERNEL, "fs", "fs", "fs", "fs", "fs/proc", KERNEL, "block", "fs/btrfs", KERNEL]
    built_in = {1: "ext4_get_group_number", 2: "ext4_own", 3: "ext4_init_orphan_info", 4: "jbd2_journal_start"}
    assert subsystems(symbols_of(built_in))[:3] == ["fs/ext4"] * 3
    assert subsystems(symbols_of({1: "nobody", 2: "zfs:open"})) == [KERNEL, "zfs"]
    assert subsystems(Symbols(symbols.addresses[:0], [], [])) == []


def test_folded_stacks_and_the_picture_hold_every_function() -> None:
    made = explained(window({"foo": 10, "a<b>;c d": 5}), window({"foo": 20}))
    lines = to_folded(made).splitlines()
    assert lines[0] == "kernel,_elsewhere;kernel;foo 20 40"
    assert all(len(line.split(" ")) == 3 for line in lines)
    picture = ET.fromstring(draw(made))
    titles = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "foo: 20 → 40 ns per MiB, +20" in titles
    assert any(title is not None and title.startswith("a<b>") for title in titles)
    assert "(simulated)" in draw(made)
    assert "<script" not in draw(made)


def test_profiles_that_were_kept_are_explained(fsjoule: CommandLine, tmp_path: Path) -> None:
    run = write_profiled(tmp_path / "results")
    written = ("--svg", tmp_path / "why.svg", "--folded", tmp_path / "why.folded")
    done = fsjoule("explain", "6.1", "6.12", "--within", run, "--fs", "btrfs", "-k", "randread", *written)
    assert done.code == 0, done.err
    assert done.out.startswith("btrfs randread-16k: 6.12 is busy for ")
    assert "btrfs_read" in done.out
    ET.parse(tmp_path / "why.svg")
    assert (tmp_path / "why.folded").read_text().startswith("btrfs;btrfs;btrfs_read ")
    document = fsjoule(
        "explain", "6.1", "6.12", "--within", run, "--fs", "btrfs", "-k", "randread-16k", "--json"
    ).document
    (told,) = document["explanations"]
    assert (document["schema"], told["unit"], told["explained_by_ten"]) == ("fsjoule.explain/1", "MiB", 1.0)
    first = told["functions"][0]
    assert (first["name"], first["module"], first["presence"]) == ("btrfs_read", "btrfs", "both")
    assert first["candidate_ns"] == pytest.approx(2 * first["baseline_ns"])


def test_two_stacks_of_a_run_are_explained_as_two_kernels_are(tmp_path: Path) -> None:
    made = load_run(write_profiled(tmp_path / "results"))

    def below(one: Measurement) -> Measurement:
        series = one.series if one.kernel == "6.1" else replace(one.series, storage=f"{one.series.storage} + dm-crypt")
        return replace(one, kernel="6.1", series=series)

    run = replace(made.run, plan=replace(made.run.plan, kernels=("6.1",)))
    loaded = replace(made, run=run, measurements=tuple(map(below, made.measurements)))
    kernels = {each.series: each for each in explain_run(made, "6.1", "6.12")}
    stacks = {each.series: each for each in explain_run(loaded, "none", "dm-crypt")}
    assert kernels.keys() == stacks.keys()
    assert all(stacks[name].change_ns == kernels[name].change_ns for name in kernels)
    with pytest.raises(ConfigError, match="unknown kernel of the run"):
        explain_run(loaded, "none", "dm-integrity")


def test_an_index_keeps_which_changes_are_explained(fsjoule: CommandLine, tmp_path: Path) -> None:
    run = write_profiled(tmp_path / "results")
    with open_index("index.sqlite", create=True) as index:
        import_runs(index, [run])
    words = ("explain", "6.1", "6.12", "--within", run, "--fs", "btrfs", "-k", "randread")
    assert fsjoule(*words, "--index", "index.sqlite").code == 0
    with open_index("index.sqlite") as index:
        (state,) = kept_states(index)
        (about,) = list_series(index, Where(series=(state.series,)))
        assert set(state.kernels or ()) == set(stats(index).kernels)
    assert (state.state, state.metric, state.ratio) == (ChangeState.EXPLAINED, None, None)
    assert about.series.label.startswith("btrfs randread-16k")
    # The explanation is there, whatever the index is.
    other = fsjoule(*words, "--index", "none.sqlite")
    assert other.code == 0
    assert "warning: the index does not know of it: there is no index at" in other.err


@pytest.mark.parametrize(
    ("words_", "said"),
    [
        (("6.1", "5.4", "--within", "RUN"), "unknown kernel of the run"),
        (("6.1", "6.1", "--within", "RUN"), "nothing to explain"),
        (("6.1", "6.12", "--within", "RUN", "-k", "read-4k"), "no measurement has a name that matches"),
        (("6.1", "6.12", "--within", "RUN", "--fs", "xfs"), "unknown filesystem"),
        (("6.1", "6.12", "--within", "RUN", "--seed", "1"), "only what is measured now"),
        (("6.1", "6.12", "--within", "nowhere"), "not a run folder"),
        (("6.1", "6.1", "--lg-env", str(PROJECT / "env/deterministic.yaml")), "nothing to explain"),
    ],
    ids=range(7),
)
def test_what_cannot_be_explained_is_refused(
    words_: tuple[str, ...], said: str, fsjoule: CommandLine, tmp_path: Path
) -> None:
    run = write_profiled(tmp_path / "results") if "RUN" in words_ else Path()
    done = fsjoule("explain", *(str(run) if word == "RUN" else word for word in words_))
    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_a_run_without_profiles_or_symbols_says_what_it_lacks(fsjoule: CommandLine, tmp_path: Path) -> None:
    for profiles, said in ((False, "no profiles of both 6.1 and 6.12"), (True, "no symbols of boot 1, 2")):
        run = write_profiled(tmp_path / said.replace(" ", "-"), profiles=profiles, symbols=False)
        done = fsjoule("explain", "6.1", "6.12", "--within", run)
        assert done.code == 2
        assert said in " ".join(done.err.split())
        assert profiles or "fsjoule explain 6.1 6.12 --lg-env " in done.err


def test_a_gate_explains_the_series_that_regressed(tmp_path: Path) -> None:
    run = write_profiled(tmp_path / "results")
    worse = next(each for each in load_run(run).measurements if each.slug == "btrfs-write-16k").series
    finding: Finding[SequentialState] = Finding(
        Subject("key", worse, simulated=True, label="btrfs write-16k"),
        Metric.THROUGHPUT,
        Outcome.REGRESSED,
        *(0.9, None, 0.02, 10.0, 9.0, (2, 2)),
        SequentialState(Outcome.REGRESSED, more=False, pairs=2, ratio=0.9),
    )
    sides = GateSide("6.1", "6.1"), GateSide("6.12", "6.12")
    gated = Gated(GateVerdict.REGRESSED, *sides, Policy(), "decided", findings=(finding,), folder=str(run))
    (told,) = explain_gated(gated)
    assert told.series == "btrfs write-16k"
    assert told.functions[0].name == "btrfs_read"
    with pytest.raises(ResultError, match="measured nothing"):
        explain_gated(replace(gated, folder=None))


def test_the_script_tells_profiles_that_are_not_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_profiled(tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["exact_profiles", str(run)])
    assert exact_profiles.main() == 0
    counted = len(list((run / "measurements").iterdir()))
    assert f"{counted} profiles, {counted} of them exact to the instruction" in capsys.readouterr().out
    first = min((run / "measurements").iterdir()) / PROFILE_FILE
    first.write_bytes(encode_profile(replace(profile_of({0xC0000004: 7}), busy_ns=6 * INSTRUCTION_NS)))
    assert exact_profiles.main() == 1
    assert "off by 1\n" in capsys.readouterr().out
