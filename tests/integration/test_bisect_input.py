"""What `fsjoule bisect` refuses: by its command line, before anything is built, with nothing left behind."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, asked, figures
from command_line import CommandLine
from kernel_trees import commit, git, new_tree
from results_factory import make_measurement
from toy_kernel import changed, new_kernel, tools_for_it

from fsjoule.errors import ConfigError, LabError
from fsjoule.host import process
from fsjoule.host.setup import needs
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Planned, Provision
from fsjoule.model.metrics import Metric
from fsjoule.report.bisection.words import facts
from fsjoule.runs.bisect.boots import figures_of_boot
from fsjoule.runs.bisect.question import begin
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.store.bisection import CommitLine, MeasuredBoot, bisection_log
from fsjoule.testing import FakeKernelBoots

ENVIRONMENTS = Path(__file__).parents[2] / "env"
GUEST = ENVIRONMENTS / "deterministic.yaml"


@pytest.fixture
def run(fsjoule: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return fsjoule


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of two branches, linux, and a shallow clone of it."""
    folder = tmp_path_factory.mktemp("trees")
    tree = new_tree(folder / "linux")
    git(tree, "checkout", "--quiet", "-b", "side")
    commit(tree, "b", "1")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "a", "1")
    git(tree, "tag", "first")
    commit(tree, "a", "2")
    git(tree, "clone", "--quiet", "--depth=1", f"file://{tree}", str(folder / "shallow"))
    return folder


@pytest.fixture
def tree(trees: Path, tmp_path: Path) -> Path:
    shutil.copytree(trees, tmp_path, dirs_exist_ok=True)
    return tmp_path / "linux"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--good", "main", "--bad", "first"), "main (good) comes after first (bad): they look swapped"),
        (("--good", "main", "--bad", "main"), "main is both good and bad"),
        (("--good", "side", "--bad", "main"), "side (good) is not an ancestor of main (bad)"),
        (("--good", "v9", "--bad", "main"), "has no revision 'v9'"),
        (("--tree", "nowhere"), "nowhere is not a readable git repository"),
        (("--tree", "shallow"), "shallow is a shallow repository"),
        (("--metric", "energi"), "unknown metric 'energi'"),
        (("--metric", "throughput,duration"), "--metric duration: no chosen measurement has it"),
        (("-k", "mkfs", "--metric", "cpu"), "--metric cpu: no chosen measurement has it"),
        (("-k", "nothing"), "-k nothing: no measurement of the suite has a name that matches"),
        (("--lg-env", ENVIRONMENTS / "virtual-x86.yaml"), "the recipe 'x86' has no configuration for a kernel build"),
        (("--config", "nowhere.config"), "nowhere.config"),
        (("--index", "nowhere.sqlite"), "there is no index at"),
        (("--results", "linux/a/b"), "--results: nothing can be written in linux/a/b"),
        (("--install", "/usr/bin/app=a"), "are for --build"),
        (("--build", "make"), "--build needs --loader or --install"),
        (("--build", "make", "--loader", "u-boot.bin"), "cards of the recipe imx6ul have no boot loader"),
        (("--build", "make", "--install", "/usr/bin/app=a", "--explain"), "--explain: it is for kernels"),
        (("--state", "linux/a/b"), "--state: nothing can be written in linux/a/b"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    words: tuple[object, ...], told: str, tree: Path, run: CommandLine, tmp_path: Path
) -> None:
    given = ("--lg-env", GUEST, "--tree", tree, "--good", "v6.1", "--bad", "main", "-k", "read-16k")
    # An option of `words` takes the place of the same one before it; boards and revisions may be repeated.
    kept = given[:4] + given[8:] if "--good" in words else given
    kept = kept[2:] if "--lg-env" in words else kept
    refused = run("bisect", *kept, *words)
    assert refused.code == 2
    assert told in refused.err
    assert "  hint: " in refused.err
    assert "Traceback" not in refused.err
    assert not (tmp_path / "bisection").exists()
    assert not list((tmp_path / "cache").glob("kernels/built/*"))


def test_a_dirty_tree_is_left_as_it_is(tree: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "a").write_text("not committed")
    monkeypatch.chdir(tree)
    # Tree, board and the bad end are the defaults: what is refused is the question.
    refused = run("bisect", "--good", "main")
    assert refused.code == 2
    assert "not committed" not in refused.err
    assert (tree / "a").read_text() == "not committed"


def test_a_machine_without_a_compiler_is_no_fault_of_the_end(
    tree: Path, run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(process.find_tool("git"))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(needs, "SYSTEM_PATH", str(programs))
    refused = run("bisect", "--lg-env", GUEST, "--tree", tree, "--good", "v6.1", "--bad", "main")
    assert refused.code == 2
    assert "was not found" in refused.err
    assert "apt-get install" in refused.err


def test_kernels_without_symbols_are_not_searched_to_be_explained(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools_for_it(tmp_path / "tools", monkeypatch)
    tree = new_kernel(tmp_path / "linux")
    changed(tree, "fs/ext4/file.c", "x +", "x + 1 +")
    refused = run("bisect", "--lg-env", GUEST, "--tree", tree, "--good", "v6.1", "--bad", "main", "--explain")
    assert refused.code == 2
    assert "--explain: these kernels have no symbols (CONFIG_KALLSYMS is not set)" in refused.err
    assert not list((tmp_path / "cache").glob("kernels/built/*"))


def test_another_question_is_refused_and_says_how_it_differs(tmp_path: Path) -> None:
    question = replace(asked(100), config=("CONFIG_A=y\nCONFIG_B=y\n",))
    others = {
        'good: ["000000000000"], not ["000000000001"]': replace(question, good=COMMITS[1:2]),
        'board: "deterministic", not "imx"': replace(question, board="imx"),
        'figures: [], not ["ext4-mkfs duration"]': replace(question, figures=(*question.figures, "ext4-mkfs duration")),
        'effects: {"throughput": 0.03, "cpu": 0.03}, not {"throughput": 0.02}': replace(
            question, effects={Metric.THROUGHPUT: 0.02}
        ),
        'config: ["CONFIG_B=y"], not ["CONFIG_C=y"]': replace(question, config=("CONFIG_A=y\n", "CONFIG_C=y\n")),
    }
    with bisection_log(tmp_path) as log:
        begin(log, question, CommitLine(COMMITS))
        for told, other in others.items():
            with pytest.raises(ConfigError, match="holds a bisection of another question") as refused:
                begin(log, other, CommitLine(COMMITS))
            assert told in str(refused.value)
        assert len(log.events) == 1


def test_the_same_command_goes_on_though_its_seed_is_new(tmp_path: Path) -> None:
    """A plan's order, and with it that of the figures, was once another one for each seed."""
    question = asked(100)
    with bisection_log(tmp_path) as log:
        begin(log, question, CommitLine(COMMITS))
        begin(log, replace(question, seed=8, figures=question.figures[::-1]), CommitLine(COMMITS))
        assert log.events == [question]


def test_a_larger_budget_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])), budget=10)
    assert bisection.answer().kind is AnswerKind.UNDECIDED
    with bisection_log(tmp_path) as log:
        begin(log, asked(6), CommitLine(COMMITS))
        assert bisection.boots.booted == bisection.boots.booted[:10]
        begin(log, asked(100), CommitLine(COMMITS))
    answer = bisection.answer()
    assert (answer.kind, answer.commits) == (AnswerKind.CULPRIT, (COMMITS[41],))
    with bisection_log(tmp_path) as log:
        numbers = [each.number for each in log.events if isinstance(each, MeasuredBoot)]
    assert numbers == list(range(1, answer.boots + 1))


def test_figures_that_the_board_does_not_give_end_it_before_the_second_boot(tmp_path: Path) -> None:
    """They are no fault of a kernel, and without an end: a figure that nobody has shows no loss and no health."""
    throughput = asked(9).figures[0]
    boots = FakeKernelBoots(figures(COMMITS[41]), absent={throughput: "the meter has been silent for 2 s"})
    bisection = Bisection(tmp_path, boots)
    with pytest.raises(LabError, match=f"the board gives no {throughput}: the meter has been silent") as ended:
        bisection.run()
    assert "run the same command again" in str(ended.value)
    assert len(boots.booted) == 1
    boots.absent = {}
    assert bisection.answer().commits == (COMMITS[41],)


def test_a_meter_that_dies_under_way_costs_no_commit_its_name(tmp_path: Path) -> None:
    boots = FakeKernelBoots(figures(COMMITS[41]), faults=[*[None] * 9, LabError("stop here")])
    bisection = Bisection(tmp_path, boots)
    with pytest.raises(LabError, match="stop here"):
        bisection.run()
    one, other = asked(9).figures
    boots.absent = {one: "silent", other: "silent"}
    with pytest.raises(LabError, match="the board gives no"):
        bisection.run()
    # One of both is enough to go on.
    boots.absent = {one: "silent"}
    assert bisection.answer().commits == (COMMITS[41],)


def test_a_loss_that_is_smaller_than_asked_for_is_told_with_the_effect_that_finds_it(tmp_path: Path) -> None:
    def exactly(kernel: str, seed: int) -> dict[str, float | None]:
        del seed
        factor = 0.99 if kernel.partition("-")[0] >= COMMITS[41] else 1.0
        return dict(zip(asked(9).figures, (80 * factor, 0.012 / factor), strict=True))

    bisection = Bisection(tmp_path, FakeKernelBoots(exactly))
    state = bisection.run()
    told = dict(facts(state, bisection.answer()))
    assert bisection.answer().kind is AnswerKind.NO_REGRESSION
    assert told["ends"].startswith("ext4-randread-16k cpu: 1.0 % more CPU time")
    assert "--effect 1.0% and another --state" in told["smaller"]
    assert len(bisection.boots.booted) < 20


def test_a_figure_is_absent_for_a_reason_only_if_its_measurement_went_well() -> None:
    workloads = [FioWorkload(pattern, 16 * KIB, 16 * MIB) for pattern in (IoPattern.READ, IoPattern.WRITE)]
    entries = [Planned(n, 1, "6.1", "ext4", each, "quick", Provision.SCRATCH) for n, each in enumerate(workloads, 1)]
    read, write = (make_measurement(entry)[0] for entry in entries)
    silent = replace(read, energy=None, energy_mj_per_mib=None, notes=("no energy: the meter has been silent",))
    found, absent, steps = figures_of_boot(
        entries, [silent, replace(write, invalid_reasons=("clipped",))], [Metric.THROUGHPUT, Metric.ENERGY]
    )
    assert found["ext4-read-16k throughput"] is not None
    assert {name for name, value in found.items() if value is None} == {
        "ext4-read-16k energy",
        "ext4-write-16k throughput",
        "ext4-write-16k energy",
    }
    assert absent == {"ext4-read-16k energy": "the meter has been silent"}
    assert steps == {"ext4-read-16k throughput": pytest.approx(1e-3 / (read.duration_s or 0))}
