"""A job of KernelCI's between its kernel and its end: what is refused before a bench, and what a bench is given."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fresh_boots import kernel_folder
from kernelci_server import KCIDB_TOKEN, RUNTIME, TOKEN, KernelCI, kernelci_server

from fsjoule.ci.kernelci.api import Api
from fsjoule.ci.kernelci.poll import KernelCILab, Poller
from fsjoule.errors import KernelCIError
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose

ENVIRONMENT = project_dir() / "env" / "virtual-x86.yaml"
EXT4 = "kernel/fs/ext4/ext4.ko"
# A plug-in that a bench's pytest loads first: it tells the bench's environment, and ends it.
SPY = """\
import json, os, pathlib
pathlib.Path(os.environ["SPY_TELLS"]).write_text(json.dumps(dict(os.environ)))
pathlib.Path(os.environ["SPY_TELLS"] + ".argv").write_text(pathlib.Path("/proc/self/cmdline").read_text())
os._exit(0)
"""


@dataclass
class Board:
    """A lab of the emulated x86 board that polls `server`. Its kernels come from `folder`."""

    server: KernelCI
    folder: Path

    def job(self, number: int, **changed: Any) -> str:
        """A job with a kernel that has ext4 and no other filesystem."""
        build = kernel_folder(self.folder / f"build-{number}", "6.13")
        listed = build / "lib/modules/6.13/modules.builtin"
        listed.write_text(f"{listed.read_text()}{EXT4}\n")
        with tarfile.open(build / "modules.tar.xz", "w:xz") as archive:
            archive.add(build / "lib", "lib")
        parts = {"kernel": build / "bzImage", "modules": build / "modules.tar.xz"}
        served = {part: self.server.serves(file) for part, file in parts.items()}
        return self.server.job(number, served, arch="x86_64", platform="qemu", **changed)

    def poller(self, filesystem: str = "ext4", options: tuple[str, ...] = ()) -> Poller:
        environment = read_environment(ENVIRONMENT)
        choice = choose(
            BenchOptions(suite="quick", fs=filesystem, kernel="6.1", repeat=1, results=self.folder), environment
        )
        results = self.folder / "results"
        lab = KernelCILab(RUNTIME, "qemu", environment, results, choice, options, "mylab", 3600)
        return Poller(Api(self.server.api, TOKEN), lab, None, again_s=0.01)

    def ended(self, number: str) -> tuple[str, str, str]:
        node = self.server.nodes[number]
        return node["result"], node["data"].get("error_code", ""), node["data"].get("error_msg", "")


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Board]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    with kernelci_server() as server:
        yield Board(server, tmp_path)


def test_a_bench_is_given_the_labs_variables_and_no_token(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    (board.folder / "spy.py").write_text(SPY)
    for name, value in {
        "PYTHONPATH": str(board.folder),
        "SPY_TELLS": str(board.folder / "told"),
        "KCI_API_TOKEN": TOKEN,
        "KCIDB_REST": f"https://{KCIDB_TOKEN}@kcidb.example.org",
        "LG_COORDINATOR": "lab:20408",
    }.items():
        monkeypatch.setenv(name, value)
    board.job(7)
    assert board.poller(options=("-p", "spy")).once() == 1
    told: Mapping[str, str] = json.loads((board.folder / "told").read_text())
    assert told["LG_COORDINATOR"] == "lab:20408"
    assert "\0--fsjoule-bench\0" in (board.folder / "told.argv").read_text(), "it is `fsjoule bench`"
    assert not {name for name, value in told.items() if TOKEN in value or KCIDB_TOKEN in value}


def test_a_kernel_without_the_labs_filesystem_is_refused_before_the_bench(board: Board) -> None:
    job = board.job(7)
    poller = board.poller("btrfs")
    assert poller.once() == 1
    result, code, why = board.ended(job)
    assert (result, code) == ("incomplete", "invalid_job_params")
    assert re.fullmatch(r"the kernel \S+ has no btrfs: it lacks btrfs", why)
    assert not list(poller.folder.rglob("bench.log"))


@pytest.mark.parametrize("wrong", ["", "sha256:" + "0" * 64, "0" * 63, "z" * 64])
def test_a_digest_that_is_none_is_refused_before_anything_is_fetched(board: Board, wrong: str) -> None:
    job = board.job(7, sha256={"kernel": wrong, "rootfs": "another's"})
    board.poller().once()
    result, code, why = board.ended(job)
    assert (result, code) == ("incomplete", "invalid_job_params")
    assert why == f"the SHA-256 of the job's kernel is not 64 hexadecimal digits: {wrong!r}"
    assert not [path for path, _ in board.server.authorized if path.endswith(("bzImage", "modules.tar.xz"))]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_end_that_kernelci_does_not_want_is_told_once(board: Board, said: list[str], at_once: bool) -> None:
    poller = board.poller("btrfs")
    job = board.job(7)
    # A node that was deleted while its job was done; or in the round after.
    board.server.puts = [200, 404] if at_once else [200, 503, 503, 503, 503, 503, 404]
    if at_once:
        assert poller.once() == 1
    else:
        with pytest.raises(KernelCIError, match="503"):
            poller.once()
        poller.once()
    [told] = [line for line in said if "is not told again" in line]
    assert f"changing KernelCI's node {job}" in told
    assert [each.name for each in (poller.folder / job).glob("claim*")] == ["claim.json.refused"]
    said.clear()
    board.server.puts = [404]
    poller.once()
    assert not [line for line in said if "told" in line]
    assert board.server.puts == [404], "nothing was changed"
