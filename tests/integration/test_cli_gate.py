"""`fsjoule gate` over boots that were measured before: answers, exit codes, what is refused, text, Markdown, JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from compared_runs import write_kernels
from kernel_trees import new_tree

from fsjoule.cli import gate as cli_gate
from fsjoule.errors import (
    ConfigError,
    FsjouleError,
    KernelBuildError,
    LabError,
    MeasurementInvalid,
    ResultError,
)
from fsjoule.lab import read_environment
from fsjoule.model import FioWorkload, Measurement
from fsjoule.report.run import write_report
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import planned
from fsjoule.runs.request import choose
from fsjoule.statistics.policy import read_policy
from fsjoule.store.gate import GateVerdict, from_document, keep_gate, to_document

VIRTUAL = Path(__file__).parents[2] / "env" / "virtual.yaml"

POLICY = """\
[gate]
metrics = ["throughput", "energy"]
"""


@pytest.fixture
def run(fsjoule: CommandLine, tmp_path: Path) -> CommandLine:
    (tmp_path / "policy.toml").write_text(POLICY)
    return fsjoule


def recorded(folder: Path, speed: float, **changed: Any) -> Path:
    return write_kernels(folder / "results", speeds={"6.1": 1.0, "6.12": speed}, **changed)


def gate(run: CommandLine, folder: Path, *more: object) -> Any:
    words = ("gate", "--baseline", f"6.1@{folder}", "--candidate", f"6.12@{folder}", "--policy", "policy.toml")
    return run(*words, *more)


def test_no_change_passes(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 1.0))
    assert done.code == 0, done.err
    assert "unchanged or better: 4 figures" in " ".join(done.out.split())
    assert "simulated" in done.out


def test_a_loss_is_a_regression_and_the_rest_is_told(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 0.9), "--json")
    assert done.code == 1, done.err
    document = done.document
    assert document["schema"] == "fsjoule.gate/1"
    assert (document["verdict"], document["exit_code"], document["simulated"]) == ("regressed", 1, True)
    assert 3 <= document["pairs"] < 10
    worse = [test for test in document["tests"] if test["decision"] == "regressed"]
    assert worse
    assert {test["label"] for test in worse} == {"btrfs randwrite-16k"}
    throughput = next(test for test in document["tests"] if test["metric"] == "throughput" and test in worse)
    assert throughput["ratio"] == pytest.approx(0.9, abs=0.02)
    low, high = throughput["interval"]
    assert low < 0.9 < high < 1
    assert document["command"][:2] == ["fsjoule", "gate"]


def test_what_is_kept_is_read_back_as_it_was(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 0.9), "--json")
    read = from_document(done.out.encode())
    assert json.loads(json.dumps(to_document(read, done.document["headline"]))) == done.document
    ratio = re.sub(r'"ratio": [\d.]+', '"ratio": RATIO', done.out, count=1)
    effect = done.out.replace('"smallest_effect": 0.05', '"smallest_effect": 1.0')
    numbers = [ratio.replace("RATIO", number) for number in ("0", "-1", "NaN", "Infinity", '"x"')]
    for damaged in ("[]", "{}", '{"tests": [{}]}', "{", effect, *numbers):
        with pytest.raises(ResultError, match=r"gate\.json (cannot be read|names no schema)"):
            from_document(damaged.encode())
    with pytest.raises(ResultError, match=r"gate\.json is of schema 'fsjoule\.gate/2'; .* reads 'fsjoule\.gate/1'"):
        from_document(done.out.replace("fsjoule.gate/1", "fsjoule.gate/2").encode())


def test_all_figures_are_shown_if_asked_for(run: CommandLine, tmp_path: Path) -> None:
    folder = write_kernels(tmp_path / "results", speeds={"6.1": 1.0, "6.12": 0.9})
    words = ("gate", "--baseline", f"6.1@{folder}", "--candidate", f"6.12@{folder}")
    assert "and 1 more figure: 1 not " in run(*words).out
    assert "more figure" not in run(*words, "--all").out


def test_a_gain_is_told_as_better(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 1.3), "--markdown", "-")
    assert done.code == 0
    assert "4 figures, btrfs randwrite-16k 2" in done.out
    assert "btrfs randwrite-16k" in done.out


def test_the_budget_ends_it(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 0.97, noise=0.1), "--budget", "8")
    assert done.code == 3
    assert "not decided" in done.out
    assert "the budget was used up" in " ".join(done.out.split())


def test_too_few_pairs_are_not_decided(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 1.0, boots=2), "--json")
    assert done.code == 3
    assert done.document["ended"] == "there are no more than 2 pairs"


def test_markdown_is_fit_for_a_note(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 0.9), "--markdown", "note.md")
    assert done.code == 1
    lines = (tmp_path / "note.md").read_text().splitlines()
    assert lines[0].startswith("**fsjoule gate: regressed** on virtual: btrfs randwrite-16k ")
    assert "(simulated)" in lines[0]
    columns = [name.strip() for name in lines[2].strip("|").split("|")]
    assert columns == ["series", "figure", "change", "95 % interval", "verdict", "baseline to candidate"]
    rows = [line for line in lines if line.startswith("| btrfs")]
    assert rows
    assert "regressed" in rows[0]
    for title in (" more figure", "To repeat it"):
        assert any(line.startswith("<details>") and title in line for line in lines), title
    assert sum(line == "</details>" for line in lines) == sum(line.startswith("<details>") for line in lines)
    [command] = [line for line in lines if line.startswith("fsjoule gate --baseline 6.1@results/")]
    assert "note.md" not in command, "another checkout writes no note"
    assert str(tmp_path) not in "\n".join(lines)
    assert done.out.startswith("regressed: btrfs randwrite-16k ")


def invalid_or_zero(measurement: Measurement) -> Measurement:
    if measurement.kernel != "6.12" or measurement.series.filesystem != "btrfs":
        return measurement
    if measurement.repetition % 2:
        return replace(measurement, invalid_reasons=("the meter slept",), throughput_mib_per_s=1.0)
    return replace(measurement, throughput_mib_per_s=0.0, energy_mj_per_mib=None)


def test_missing_invalid_and_zero_figures_are_no_verdict(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 0.5, change=invalid_or_zero), "--json")
    assert done.code == 3, done.out
    document = done.document
    assert document["verdict"] == "not decided"
    broken = [test for test in document["tests"] if test["label"].startswith("btrfs")]
    assert all(test["pairs"] == 0 and test["ratio"] is None for test in broken)
    assert any("zero" in why for test in broken for why in test["unusable"])
    assert any("missing" in why for test in broken for why in test["unusable"])


def test_runs_apart_are_refused_unless_drift_is_accepted(run: CommandLine, tmp_path: Path) -> None:
    one = write_kernels(tmp_path / "one", "aaaaaa", speeds={"6.1": 1.0}, seed=1)
    other = write_kernels(
        tmp_path / "other", "bbbbbb", speeds={"6.12": 0.9}, seed=2, started="2026-03-10T10:00:00+00:00"
    )
    words = ("gate", "--baseline", one, "--candidate", other, "--policy", "policy.toml")
    done = run(*words)
    assert done.code == 2
    assert "a drift between them would look like a change" in done.err
    assert "--lg-env" in done.err
    accepted = run(*words, "--drift-not-excluded", "--json")
    assert accepted.code == 1
    assert "a drift between the sides is not excluded" in accepted.document["notes"][0]


def test_boots_one_side_after_the_other_are_refused(run: CommandLine, tmp_path: Path) -> None:
    done = gate(run, recorded(tmp_path, 1.0, in_turn=False))
    assert done.code == 2
    assert "were not interleaved" in done.err


def test_other_boards_are_refused(run: CommandLine, tmp_path: Path) -> None:
    one = write_kernels(tmp_path / "one", "aaaaaa", speeds={"6.1": 1.0})
    other = write_kernels(tmp_path / "other", "bbbbbb", speeds={"6.12": 0.9}, board="colibri")
    done = run("gate", "--baseline", one, "--candidate", other, "--drift-not-excluded")
    assert done.code == 2
    assert "board: virtual against colibri" in done.err


def test_a_side_is_not_compared_with_itself(run: CommandLine, tmp_path: Path) -> None:
    folder = recorded(tmp_path, 1.0)
    done = run("gate", "--baseline", f"6.1@{folder}", "--candidate", f"6.1@{folder}")
    assert done.code == 2
    assert "share 30 measurements" in done.err


@pytest.fixture
def index(run: CommandLine, tmp_path: Path) -> str:
    recorded(tmp_path, 1.0, branch="topic")
    assert run("index", "rebuild", "results", "--index", "index.sqlite").code == 0
    return "index.sqlite"


def test_no_baseline_yet_passes_and_says_so(run: CommandLine, index: str) -> None:
    words = ("gate", "--candidate", "topic", "--index", index)
    done = run(*words, "--baseline", "main", "--markdown", "note.md", "--json")
    assert done.code == 0, done.err
    assert done.document["verdict"] == GateVerdict.NO_BASELINE.value
    assert (
        Path("note.md")
        .read_text()
        .startswith("**fsjoule gate: no baseline**: topic against main: main has no measurements")
    )
    # What is to be judged must be there.
    missing = run("gate", "--baseline", "topic", "--candidate", "main", "--index", index)
    assert missing.code == 2
    assert "the index has no run, kernel or branch 'main'" in missing.err


def test_kernels_of_the_index_are_judged(run: CommandLine, index: str) -> None:
    words = ("gate", "--baseline", "6.1", "--candidate", "6.12", "--index", index, "--policy", "policy.toml")
    assert run(*words).code == 0
    assert run(*words, "--fs", "ext4", "--json").document["tests"][0]["label"].startswith("ext4")
    nothing = run(*words, "--fs", "xfs")
    assert nothing.code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seed", "0"), "only a gate that measures (--lg-env FILE) takes --seed"),
        (("--tree", "linux"), "linux is not a readable git repository"),
        (("--allow-same",), "takes --allow-same"),
        (("--storage", "nvme"), "takes --storage"),
        (("--explain",), "takes --explain"),
        (("--boards", "4"), "takes --boards"),
        (("--lg-env", str(VIRTUAL), "--boards", "4"), "only boards in guest time are brought up"),
        (("--lg-env", str(VIRTUAL), "--explain"), "is not in guest time"),
        (("--lg-env", str(VIRTUAL), "--storage", ""), "--storage names no storage device"),
        (("--lg-env", "x.yaml", "--within", "y"), "only a gate that reads earlier boots (no --lg-env) takes --within"),
        (("--lg-env", "x.yaml", "--config", "CONFIG_X=y"), "without --tree no kernel is built with --config"),
        (("--budget", "5"), "--budget 5: any decision needs 6 boots, 3 of each side"),
        (("--policy", "absent.toml"), "the policy cannot be read"),
        (("--json", "--markdown", "-"), "json and markdown are both to be printed"),
        (("--lg-env", "absent.yaml"), "absent.yaml"),
        (("--lg-env", str(VIRTUAL), "--fs", "reiserfs"), "reiserfs"),
    ],
)
def test_wrong_options_are_named(run: CommandLine, options: tuple[str, ...], said: str) -> None:
    done = run("gate", "--baseline", "6.1", "--candidate", "6.12", *options)
    assert done.code == 2
    assert said in done.err


def test_a_kernels_tree_tells_the_sides_and_the_board(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = new_tree(tmp_path / "linux")
    monkeypatch.chdir(tree / "arch")
    for words, candidate in ((("main",), "HEAD"), (("main", "v6.1"), "v6.1"), (("--baseline", "main", "v6.1"), "v6.1")):
        done = run("gate", *words, "--fs", "ext5")
        assert done.code == 2
        assert f"{candidate} against main of {tree}, on the board of " in done.err
        assert "deterministic.yaml" in done.err
        assert "unknown filesystem 'ext5'" in done.err
    assert f"{tree} has no revision 'mian'" in run("gate", "mian").err
    # What is no revision is an earlier run, or a kernel.
    assert "against" not in run("gate", "6.1", "6.12").err


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LabError("the board is on fire"), 4),
        (KernelBuildError("no rule to make target"), 6),
        (MeasurementInvalid("boot", ["clipped"]), 5),
        (FsjouleError("anything"), 70),
        (ResultError("damaged"), 2),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("a bug"), 70),
    ],
)
def test_no_error_looks_like_an_answer(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("fsjoule.runs.gate.gate_measured", fail)
    done = run("gate", "--baseline", "6.1", "--candidate", "6.12", "--lg-env", str(VIRTUAL))
    assert done.code == code
    assert code not in {verdict.exit_code for verdict in GateVerdict}


def test_the_storage_device_is_the_users() -> None:
    profile = read_environment(VIRTUAL).profile

    def measured_on(storage: str | None) -> set[str]:
        options = BenchOptions(fs="ext4", provision="scratch", seed=1, repeat=3, storage=storage)
        choice = choose(options, read_environment(VIRTUAL), pair=("6.1", "6.12"))
        entries = planned(choice, profile, choice.kernels).entries
        return {entry.storage for entry in entries if isinstance(entry.workload, FioWorkload)}

    assert measured_on(None) == {"card"}
    assert measured_on("stick") == {"stick"}
    assert measured_on("card,stick") == {"card", "stick"}
    with pytest.raises(ConfigError, match="unknown storage device of this board 'nvme'"):
        measured_on("nvme")


def test_the_examples_policy_is_one() -> None:
    policy = read_policy(Path(__file__).parents[2] / "env" / "gate.toml")
    assert cli_gate.within_budget(policy, None).least_pairs == 2
    assert cli_gate.within_budget(policy, 6).budget_pairs == 3


def test_its_page_and_the_report_of_its_run_begin_with_the_verdict(run: CommandLine, tmp_path: Path) -> None:
    folder = recorded(tmp_path, 0.9)
    done = gate(run, folder, "--json", "--page", tmp_path / "gate.html")
    assert done.code == 1
    page = (tmp_path / "gate.html").read_text()
    headline = done.document["headline"]
    assert headline.startswith("regressed: btrfs randwrite-16k ")
    assert f'<p class="answer bad">{headline.replace(" %", chr(160) + "%")}</p>' in page
    assert "Throughput: change, more is better (simulated)" in page
    assert page.count("<h2>What matters") == 1
    keep_gate(from_document(done.out.encode()), headline, folder)
    report = write_report(folder).read_text()
    assert f'<p class="answer bad">Gate: {headline}</p>' in report
    assert report.index("Gate: regressed") < report.index("<main>") < report.index("<h2>What matters")
    (folder / "gate.json").write_text("{")
    damaged = write_report(folder).read_text()
    assert "gate.json cannot be read" in damaged
    assert "Gate: regressed" not in damaged


def test_a_page_that_cannot_be_written_does_not_hide_the_answer(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "gate.html").symlink_to("/dev/full")
    done = gate(run, recorded(tmp_path, 0.9), "--page", tmp_path / "gate.html")
    assert done.code == 1
    assert "warning: " in done.err
    assert "gate.html cannot be written" in done.err
