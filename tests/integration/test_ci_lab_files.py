"""The lab's side of the pipeline: example files that are taken as they stand."""

from __future__ import annotations

import configparser
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

from fsjoule.ci.gitlab.child_pipeline import component

PROJECT = Path(__file__).parents[2]
LABGRID = PROJECT / "labgrid"
_LIMIT_S = 60.0


def test_runners_can_run_every_tagged_job() -> None:
    runners = tomllib.loads((LABGRID / "runner" / "config.toml").read_text())["runners"]
    own = yaml.safe_load((PROJECT / ".gitlab-ci.yml").read_text())
    jobs = [*component(PROJECT, {}).values(), *own.values()]
    tags = {tag for job in jobs if isinstance(job, dict) for tag in job.get("tags", [])}
    text = (LABGRID / "runner" / "config.toml").read_text()
    assert tags == {"fsjoule-board", "fsjoule-virtual", "fsjoule-tests"}
    for tag in tags:
        assert f"Tag {tag}" in text
    assert [(each["name"], each["executor"]) for each in runners if each.get("docker", {}).get("privileged")] == [
        ("lab-tests", "docker")
    ]


def test_units_start_labgrids_programs() -> None:
    for name in ("labgrid-coordinator", "labgrid-exporter"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(LABGRID / "systemd" / f"{name}.service")
        program, *options = unit["Service"]["ExecStart"].split()
        assert Path(program).name == name
        ours = Path(sys.executable).with_name(name)
        told = subprocess.run([ours, "--help"], capture_output=True, text=True, timeout=_LIMIT_S, check=True).stdout
        assert all(option in told for option in options if option.startswith("-"))
        # Neither asks for a password.
        assert (unit["Service"]["IPAddressDeny"], unit["Service"]["IPAddressAllow"]) == ("any", "localhost")
        assert "0.0.0.0" not in " ".join(options)


def test_the_lab_has_the_labgrid_that_jobs_have() -> None:
    assert f"pip install labgrid=={version('labgrid')}`" in (PROJECT / "docs" / "ci.md").read_text()


def test_a_coordinator_takes_the_place_file(tmp_path: Path) -> None:
    shutil.copy(LABGRID / "boards" / "imx6ul-evk" / "places.yaml", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    programs = Path(sys.executable).parent
    coordinator = subprocess.Popen([programs / "labgrid-coordinator", "--listen", address], cwd=tmp_path)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while True:
            done = subprocess.run(
                [programs / "labgrid-client", "-p", "imx6ul-evk", "show"],
                env={**os.environ, "LG_COORDINATOR": address},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < deadline, done.stdout + done.stderr
    finally:
        coordinator.terminate()
        coordinator.wait(_LIMIT_S)
    exporter = yaml.safe_load((LABGRID / "boards" / "imx6ul-evk" / "exporter.yaml").read_text())
    assert [f"*/{group}/*" in done.stdout for group in exporter] == [True]
    assert "board=imx6ul-evk" in done.stdout
