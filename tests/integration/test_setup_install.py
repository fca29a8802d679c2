"""What is missing by dpkg's own word, what apt says, and services that packages bring."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from command_line import command_line

from fsjoule.errors import ConfigError, HostError, StorageError
from fsjoule.host import process
from fsjoule.host.interrupts import Interrupted
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

Package: fsjoule-upgraded
Status: install ok unpacked
Version: 2
Config-Version: 1
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


HOLD: Final = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def need(name: str, **more: object) -> Need:
    return Need(name, ("bench",), "a test", **{"programs": (f"{name}-program",), **more})  # type: ignore[arg-type]


@pytest.fixture
def admindir(tmp_path: Path) -> Path:
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "info").mkdir()
    return tmp_path


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the set-up's policy would be; its locks, and those of dpkg, are in that folder as well."""
    monkeypatch.setattr(install, "_POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(install, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(install, "_DPKG_LOCKS", (tmp_path / "never-made", tmp_path / "dpkg-lock"))
    (tmp_path / "dpkg-lock").touch()
    return tmp_path / "policy-rc.d"


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="it has no dpkg")
def test_dpkg_says_what_is_missing(admindir: Path) -> None:
    names = ("fsjoule-whole", "fsjoule-half", "fsjoule-removed", "fsjoule-unheard-of")
    found = install.missing([need(name) for name in names], DEBIAN, admindir=admindir)
    assert [each.name for each in found] == list(names[1:])
    unpacked = [need(name, programs=("sh",)) for name in names]
    assert [each.name for each in install.missing(unpacked, DEBIAN, admindir=admindir)] == ["fsjoule-half"]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="it has no dpkg")
def test_a_service_that_is_upgraded_is_none_that_the_set_up_brings(admindir: Path) -> None:
    names = ("fsjoule-half", "fsjoule-upgraded", "fsjoule-removed", "fsjoule-unheard-of")
    brought = install.new_services([need(name, services=(name,)) for name in names], DEBIAN, admindir=admindir)
    assert brought == ("fsjoule-half", "fsjoule-removed", "fsjoule-unheard-of")


def test_what_is_there_without_a_package_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "status").touch()
    own = Need("fsjoule-own-build", ("bench",), "a test", programs=("sh", "env"))
    file = Need("fsjoule-file", ("bench",), "a test", files=("/etc/no-such-file", "/proc/sel*"))
    module = Need("fsjoule-module", ("bench",), "a test", module="json")
    assert install.missing([own, file, module], System("an unknown Linux", None)) == ()


def test_a_plan_has_the_numbers_that_apt_says() -> None:
    plan = install.planned(PLAN)
    assert plan is not None
    assert plan == install.Installation(143, 1.5, 589.0)
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
    with pytest.raises(StorageError, match=r"1000000\d{3} MB are needed in /usr"):
        install._check_space(install.Installation(1, 145.0, 1e9))


def test_nobody_to_ask_means_that_nothing_is_installed(tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+") as empty, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", empty)
        for plan in (install.Installation(1, 1.0, 1.0), None):
            show = io.StringIO()
            with pytest.raises(ConfigError, match="nobody can be asked"):
                install._ask(plan, DEBIAN, [need("x-package")], show)
            assert "x-package" in show.getvalue()


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

    with alone(lock, Steps(tmp_path / "setup.log")):
        assert answer() == (0 if allowed else 101)
    assert answer() == 0  # left behind by a set-up that was killed


@pytest.mark.parametrize("in_time", [True, False])
def test_services_stay_forbidden_until_dpkg_has_ended(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_time: bool
) -> None:
    """apt-get was ended, and dpkg goes on."""
    steps, lock = Steps(tmp_path / "setup.log", io.StringIO()), tmp_path / "dpkg-lock"
    wait = install._wait_for_dpkg
    with ExitStack() as closing:
        dpkg = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        closing.enter_context(dpkg)
        assert dpkg.stdout is not None
        assert dpkg.stdout.readline() == b"locked\n"

        def wait_for_it(steps: Steps) -> None:
            assert install.left_off() == ("fsjoule-none",)
            with pytest.raises(HostError, match="too long"):
                wait(steps, timeout_s=0.0)
            if in_time:
                dpkg.communicate(timeout=60)
            wait(steps, timeout_s=60.0 if in_time else 0.0)

        monkeypatch.setattr(install, "_wait_for_dpkg", wait_for_it)
        with (
            pytest.raises(Interrupted if in_time else HostError),
            install._not_started(["fsjoule-none"], steps),
        ):
            raise Interrupted(signal.SIGTERM)
    assert policy.exists() != in_time


def test_a_user_who_lacks_nothing_does_not_wait_for_roots_policy(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = install._POLICY_TEXT.format(mark=install._MARK, services="fsjoule-none", lock=tmp_path / "lock")
    policy.write_text(text)
    monkeypatch.setattr(install, "needed", lambda _purpose: ())  # pyright: ignore[reportUnknownLambdaType]
    steps = Steps(tmp_path / "setup.log", io.StringIO())
    for user in (1000, 0):
        assert policy.exists()
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert not install.set_up("bench", steps)
    assert not policy.exists()


def test_what_was_left_half_done_starts_no_service_either(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both dpkg and apt-get write down their words, the services forbidden, and whether they have the set-up's lock."""
    told = tmp_path / "told"
    note = f"""#!/bin/sh
forbidden=$(sed -n 's/.* in \\(.*\\)) ;;.*/\\1/p' {policy} 2>/dev/null)
locked=$(readlink /proc/$$/fd/* | grep -cx {tmp_path}/lock)
echo "${{0##*/}} $1 $forbidden $locked" >>{told}
[ "$1" != --audit ] || [ -e {tmp_path}/whole ] || echo half
[ "$1" != --configure ] || touch {tmp_path}/whole
"""
    for name in ("dpkg", "apt-get"):
        (tmp_path / name).write_text(note)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dpkg-query").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install, "this_system", lambda: DEBIAN)
    lacking = (need("fsjoule-absent", services=("fsjoule-new",)),)
    monkeypatch.setattr(install, "missing", lambda *_: lacking)  # pyright: ignore[reportUnknownLambdaType]
    policy.write_text(install._POLICY_TEXT.format(mark=install._MARK, services="fsjoule-old", lock=tmp_path / "lock"))
    assert install.set_up("bench", Steps(tmp_path / "setup.log", io.StringIO()), yes=True)
    services = "fsjoule-old|fsjoule-new"
    assert [line for line in told.read_text().splitlines() if "--audit" not in line] == [
        f"dpkg --configure {services} 0",
        f"apt-get -q {services} 0",  # update
        f"apt-get -q {services} 0",  # the plan
        f"apt-get -q {services} 1",
    ]
    assert not policy.exists()


def test_sudo_says_nothing_into_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sudo").write_text("#!/bin/sh\necho 'set-up: said below sudo'\n")
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(install, "this_system", lambda: DEBIAN)
    monkeypatch.setattr(install, "missing", lambda *_: (need("fsjoule-absent"),))  # pyright: ignore[reportUnknownLambdaType]
    done = command_line(monkeypatch, capfd)("setup", "--for", "reports", "--yes", "--json")
    assert done.document["purpose"] == "reports"
    assert "said below sudo" in done.err


def test_a_signal_that_sudo_may_not_get_ends_nothing_before_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_program: object, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(subprocess.Popen, "send_signal", refused)
    with pytest.raises(Interrupted) as caught:
        process.to_its_end(["sh", "-c", f"kill -TERM $PPID; sleep 0.3; touch {tmp_path}/ended"])
    assert caught.value.number == signal.SIGTERM
    assert (tmp_path / "ended").exists()


def test_a_busy_computer_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("unshare", "fsjoule-slow"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(check, "_TRY_S", 0.1)
    monkeypatch.setattr(process, "_NAMESPACE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert check.version_of("fsjoule-slow") == ""
    assert "not known" in check._namespaces().remark
    with pytest.raises(HostError, match="took longer"):
        process.check_as_root("a root partition is made")


def test_a_policy_that_was_left_behind_names_its_services(policy: Path) -> None:
    assert install.left_off() == ()
    policy.write_text("#!/bin/sh\nexit 101\n")  # an administrator's
    assert install.left_off() == ()
    policy.write_text(install._POLICY_TEXT.format(mark=install._MARK, services="ssh|postgresql", lock="/run/lock/x"))
    assert install.left_off() == ("ssh", "postgresql")


def test_a_second_set_up_waits_and_says_for_whom(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "setup.log", said := io.StringIO())
    with (
        alone(tmp_path / "lock", steps),
        pytest.raises(HostError, match="another set-up is at work"),
        alone(tmp_path / "lock", steps, timeout_s=0.5),
    ):
        pytest.fail("it has the lock")
    [line] = said.getvalue().splitlines()
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
