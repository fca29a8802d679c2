"""What is missing by dpkg's own word, what apt says, and services that packages bring."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import command_line

from fsjoule.errors import ConfigError, HostError, StorageError
from fsjoule.host.setup import check, install
from fsjoule.host.setup.needs import Need, System, distributions, this_system
from fsjoule.host.setup.steps import Steps, alone, first_cause

DEBIAN = System("Debian", distributions()[0])
STATUS = """\
Package: fsjoule-whole
Status: install ok installed
Version: 1
Architecture: all
Maintainer: nobody
Description: none

Package: fsjoule-half
Status: install ok half-configured
Version: 1
Architecture: all
Maintainer: nobody
Description: none

Package: fsjoule-removed
Status: deinstall ok config-files
Version: 1
Architecture: all
Maintainer: nobody
Description: none
"""
PLAN = """\
0 upgraded, 143 newly installed, 0 to remove and 12 not upgraded.
Need to get 1,500 kB/145 MB of archives.
After this operation, 589 MB of additional disk space will be used.
"""
NO_NETWORK = """\
Err:1 http://deb.debian.org/debian bookworm InRelease
  Temporary failure resolving 'deb.debian.org'
Reading package lists...
W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Temporary failure resolving 'deb.debian.org'
W: Some index files failed to download. They have been ignored, or old ones used instead.
"""
NO_SPACE = """\
dpkg: error processing archive /var/cache/apt/archives/gcc-12_12.2.0-14_amd64.deb (--unpack):
 cannot copy extracted data for './usr/bin/x' to '/usr/bin/x.dpkg-new': failed to write (No space left on device)
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
NOT_THERE = "Reading package lists...\nE: Unable to locate package chromium\nE: Unable to locate package frogs\n"


def need(name: str, **more: object) -> Need:
    return Need(name, ("bench",), "a test", programs=(f"{name}-program",), **more)  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="it has no dpkg")
def test_dpkg_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "info").mkdir()
    names = ("fsjoule-whole", "fsjoule-half", "fsjoule-removed", "fsjoule-unheard-of")
    found = install.missing([need(name) for name in names], DEBIAN, admindir=tmp_path)
    assert [each.name for each in found] == list(names[1:])


def test_what_is_there_without_a_package_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "status").touch()
    own = Need("fsjoule-own-build", ("bench",), "a test", programs=("sh", "env"))
    file = Need("fsjoule-file", ("bench",), "a test", files=("/etc/no-such-file", "/proc/sel*"))
    module = Need("fsjoule-module", ("bench",), "a test", module="json")
    assert install.missing([own, file, module], System("an unknown Linux", None)) == ()


def test_a_plan_has_the_numbers_that_apt_says() -> None:
    plan = install.planned(PLAN)
    assert plan is not None
    assert plan == install.Plan(143, 1.5, 589.0)
    assert plan.words == "143 packages (2 MB)"
    assert install.planned(NOT_THERE) is None


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (NO_NETWORK, "Temporary failure resolving 'deb.debian.org'"),
        (NO_SPACE, "No space left on device"),
        (NOT_THERE, "Unable to locate package chromium"),
        ("all is well\n", ""),
    ],
    ids=["network", "space", "package", "none"],
)
def test_the_first_cause_is_what_came_first(said: str, cause: str) -> None:
    assert cause in first_cause(said)
    assert bool(first_cause(said)) == bool(cause)


def test_too_little_space_is_said_before_anything_is_installed() -> None:
    with pytest.raises(StorageError, match="1000000145 MB are needed"):
        install._check_space(install.Plan(1, 145.0, 1e9))


def test_nobody_to_ask_means_that_nothing_is_installed(tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+") as empty, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", empty)
        with pytest.raises(ConfigError, match="nobody can be asked"):
            install._ask(install.Plan(1, 1.0, 1.0), DEBIAN, [need("x")])


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("ssh", "start"), False),
        (("--quiet", "ssh.socket", "start"), False),
        (("postgresql@15-main.service", "restart"), False),
        (("cron", "start"), True),
    ],
)
def test_services_stay_off_while_the_set_up_runs(words: tuple[str, ...], allowed: bool, tmp_path: Path) -> None:
    lock, policy = tmp_path / "lock", tmp_path / "policy-rc.d"
    policy.write_text(install._POLICY_TEXT.format(mark=install._MARK, services="ssh|postgresql", lock=lock))

    def answer() -> int:
        return subprocess.run(["sh", policy, *words], timeout=60, check=False).returncode

    with alone(lock, print):
        assert answer() == (0 if allowed else 101)
    assert answer() == 0  # left behind by a set-up that was killed


def test_a_policy_that_was_left_behind_names_its_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(install, "_POLICY", policy)
    assert install.left_off() == ()
    policy.write_text("#!/bin/sh\nexit 101\n")  # an administrator's
    assert install.left_off() == ()
    policy.write_text(install._POLICY_TEXT.format(mark=install._MARK, services="ssh|postgresql", lock="/run/lock/x"))
    assert install.left_off() == ("ssh", "postgresql")


def test_a_second_set_up_waits_and_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        alone(tmp_path / "lock", said.append),
        pytest.raises(HostError, match="another set-up is at work"),
        alone(tmp_path / "lock", said.append, timeout_s=0.5),
    ):
        pytest.fail("it has the lock")
    [line] = said
    assert f"(process {os.getpid()}); waiting for it" in line


def test_a_step_that_follows_from_another_names_that_one(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "setup.log")
    with pytest.raises(HostError, match="no network"):
        steps.run("packages", ["sh", "-c", "echo E: Unable to locate package x; exit 100"], because="no network")


def test_a_check_says_what_is_there_and_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = (need("fsjoule-absent"), need("fsjoule-luxury", optional=True))
    old = Need("fsjoule-old", ("bench",), "a test", programs=("env",), at_least="1000.0")

    def needed(_purpose: str) -> tuple[Need, ...]:
        return (*needs, old)

    monkeypatch.setattr(check, "needed", needed)
    state = check.checked("bench")
    found = {each.name: each.state for each in state.findings}
    assert found["fsjoule-absent"] is found["fsjoule-luxury"] is check.State.MISSING
    assert found["fsjoule-old"] is check.State.TOO_OLD
    assert {each.name for each in state.lacks} >= {"fsjoule-absent", "fsjoule-old"}
    assert "fsjoule-luxury" not in {each.name for each in state.lacks}
    assert this_system().title in "\n".join(state.lines())
    assert not state.document()["ready"]


def test_the_command_checks_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = command_line(monkeypatch, capfd)
    done = run("setup", "--for", "reports", "--check", "--json")
    document = done.document
    assert done.code == (0 if document["ready"] else check.NOT_READY)
    assert {"git", "ca-certificates"} <= {each["name"] for each in document["findings"]}
    text = run("setup", "--for", "reports", "--check")
    assert text.code == done.code
    assert len(text.out.splitlines()) >= len(document["findings"])
    assert run("setup", "--for", "frogs").code == 2
