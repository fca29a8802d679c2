"""A job of KernelCI's on the virtual lab: its kernel is fetched, booted and measured; figures and result go back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from bench_runs import PROJECT, only_run
from kernelci_server import KBUILD, RUNTIME, TOKEN, KernelCI, digest, kernelci_server
from lab_leftovers import assert_nothing_left
from lava_place import figures_of
from unprivileged import as_user
from waiting import wait_for

from fsjoule.host import process
from fsjoule.images import build_card
from fsjoule.kernels import take_kernels
from fsjoule.model import KernelOrigin, RunStatus

DTB = "imx6ul-14x14-evk.dtb"
REVISION = "v6.13-rc2-17-g1234567"
LIMIT_S = 1200.0
# The bench has 90 s to switch its board off.
ENDED_S = 120.0


@pytest.fixture(scope="module")
def kernelci(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[KernelCI, dict[str, Path]]]:
    """KernelCI with Debian's kernel as one of its builds."""
    build_card("6.1", "ext4")
    [kernel] = take_kernels(["6.1"])
    folder = tmp_path_factory.mktemp("build")
    parts = {"kernel": folder / "zImage", "dtb": folder / DTB, "modules": folder / "modules.tar.xz"}
    parts["kernel"].write_bytes((kernel.files.folder / "zImage").read_bytes())
    parts["dtb"].write_bytes((kernel.files.folder / "board.dtb").read_bytes())
    # KernelCI's archive begins with lib/modules.
    packed = ["tar", "--create", "--file", str(parts["modules"]), "-I", "xz -1 -T2"]
    process.run([*packed, "--directory", str(kernel.files.modules_root), "lib"], timeout_s=LIMIT_S)
    with kernelci_server() as has:
        yield has, parts


def polling(has: KernelCI, state: Path, results: Path, *options: str) -> subprocess.Popen[str]:
    """As a user who is not root: the card's image and a bench in guest time need nothing of root's."""
    words = ["kernelci", "poll", has.api, "--runtime", RUNTIME, "--platform", "imx6ul", "--results", str(results)]
    words += ["--lg-env", str(PROJECT / "env" / "deterministic.yaml"), "--fs", "ext4", "--repeat", "1", "--once"]
    words += ["--origin", "mylab", *options]
    variables = {"FSJOULE_STATE_DIR": str(state), "KCI_API_TOKEN": TOKEN, "KCIDB_REST": has.kcidb}
    return subprocess.Popen(
        [*as_user(), str(Path(sys.executable).with_name("fsjoule")), *words],
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_is_measured_and_its_figures_belong_to_kernelcis_build(
    kernelci: tuple[KernelCI, dict[str, Path]], state: Path, tmp_path: Path
) -> None:
    has, parts = kernelci
    sums = {part: digest(file) for part, file in parts.items()}
    job = has.job(7, {part: has.serves(file) for part, file in parts.items()}, sha256=sums)
    # KCIDB is away at first; the next round sends what is left.
    has.faults["/kcidb/submit"] = 503
    with polling(has, state, tmp_path / "results", "--", "-k", "mkfs or (read and not rand)") as poll:
        _, said = poll.communicate(timeout=LIMIT_S)
    assert poll.returncode == 0, said
    node = has.nodes[job]
    assert (node["state"], node["result"]) == ("done", "pass"), said
    assert "error_code" not in node["data"]
    run = only_run(tmp_path / "results")
    assert run.run.status is RunStatus.COMPLETE
    [kernel] = run.run.kernels
    assert (kernel.origin, kernel.label, kernel.git_describe) == (KernelOrigin.FOLDER, REVISION, REVISION)
    assert has.sent == []
    del has.faults["/kcidb/submit"]
    with polling(has, state, tmp_path / "results") as poll:
        _, said = poll.communicate(timeout=LIMIT_S)
    assert "KCIDB has them as a1b2c3" in said
    [sent] = has.sent
    figures = {test["id"]: test for test in sent["tests"] if test["status"] == "DONE"}
    expected = [pair for each in run.measurements for pair in figures_of(each)]
    assert sorted(test["number"]["value"] for test in figures.values()) == sorted(figure for _, (figure, _) in expected)
    assert {test["build_id"] for test in sent["tests"]} == {f"maestro:{KBUILD}"}
    assert {test["origin"] for test in sent["tests"]} == {"mylab"}
    assert sent["checkouts"] == sent["builds"] == []
    assert TOKEN not in said
    # Files of a kernel are large; the rest of a job's folder is kept.
    assert not list((state / "kernelci").glob(f"*/{job}/kernel"))
    [sent_as] = (state / "kernelci").glob(f"*/{job}/submission.json")
    assert json.loads(sent_as.read_text())["id"] == "a1b2c3"
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_a_lab_that_is_ended_ends_its_bench_and_gives_the_job_up(
    kernelci: tuple[KernelCI, dict[str, Path]], state: Path, tmp_path: Path
) -> None:
    """tests/integration/test_kernelci.py ends a lab before its bench, test_interrupted_runs.py benches."""
    has, parts = kernelci
    job = has.job(8, {part: has.serves(file) for part, file in parts.items()})

    def logged() -> str:
        return "".join(log.read_text() for log in (state / "kernelci").glob(f"*/{job}/bench.log"))

    def measuring() -> bool:
        return "results go to " in logged()

    with polling(has, state, tmp_path / "results") as poll:
        wait_for(measuring, lambda: logged() or "no bench", LIMIT_S)
        time.sleep(2)
        poll.send_signal(signal.SIGTERM)
        _, said = poll.communicate(timeout=ENDED_S)
    assert poll.returncode == 143, said
    node: dict[str, Any] = has.nodes[job]
    told = (node["state"], node["result"], node["data"]["error_code"], node["data"]["error_msg"])
    assert told == ("done", "incomplete", "Canceled", "the lab ended the job")
    assert only_run(tmp_path / "results").run.status is RunStatus.ABORTED
    assert_nothing_left(state, state / "devices")
