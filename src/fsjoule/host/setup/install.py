"""Installs what is missing, with Debian's apt, as root or by sudo; elsewhere it says what to install."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from fsjoule.errors import ConfigError, HostError, StorageError
from fsjoule.host import process
from fsjoule.host.setup.needs import Need, System, find_program, needed, this_system
from fsjoule.host.setup.steps import Steps, alone, first_cause

_LOCK: Final = Path("/run/fsjoule-setup.lock")
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
# apt's, and dpkg's own: dpkg below an apt-get that was killed holds the second one alone.
_DPKG_LOCKS: Final = (Path("/var/lib/dpkg/lock-frontend"), Path("/var/lib/dpkg/lock"))
# States of a package that is neither whole nor gone (dpkg(1)). One that awaits a trigger can be used.
_HALF: Final = ("half-installed", "unpacked", "half-configured")
_LOCK_S: Final = 300
_QUERY_S: Final = 60.0
_SOURCE: Final = Path(__file__).resolve().parents[3]
_APT: Final = ("apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_LOCK_S}")
_ENV: Final = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
_UNITS: Final = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
# Debian's policy for services (invoke-rc.d(8)). It forbids only while the set-up, or apt below it, holds the lock: one
# that is left behind by a set-up that was killed forbids nothing.
_MARK: Final = "# Made by fsjoule's set-up while it installs packages; it may be removed."
_POLICY_TEXT: Final = """\
#!/bin/sh
{mark}
while [ "${{1#-}}" != "$1" ]; do shift; done
case "${{1%%[.@]*}}" in {services}) ;; *) exit 0 ;; esac
flock --nonblock {lock} true && exit 0
exit 101
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """What apt would install; the sizes are in MB, as apt says them."""

    packages: int
    fetch_mb: float
    disk_mb: float

    @property
    def words(self) -> str:
        return f"{self.packages} packages" + (f" ({self.fetch_mb:.0f} MB)" if self.fetch_mb >= 1.0 else "")


@dataclass(frozen=True, slots=True)
class Known:
    """What dpkg knows of packages, by name. `before`: of the half ones those that were whole earlier."""

    whole: frozenset[str] = frozenset()
    half: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()


def known(needs: Iterable[Need], system: System, *, admindir: Path | None = None) -> Known:
    """What dpkg knows of their packages; `admindir` is its database, if not this computer's."""
    if system.like is None or not system.like.has_apt:
        return Known()
    names = [name for need in needs for name in need.packages(system.like)]
    database = [] if admindir is None else [f"--admindir={admindir}"]
    found = process.run(
        ["dpkg-query", *database, "-W", "-f", "${Package} ${db:Status-Status} ${Config-Version}\n", *names],
        timeout_s=_QUERY_S,
        check=False,
    )
    lines = [line.split() for line in found.stdout.decode().splitlines()]
    half = [words for words in lines if words[1] in _HALF]
    return Known(
        frozenset(words[0] for words in lines if words[1] == "installed"),
        frozenset(words[0] for words in half),
        frozenset(words[0] for words in half if words[2:]),
    )


def missing(needs: Iterable[Need], system: System, *, admindir: Path | None = None) -> tuple[Need, ...]:
    """Those of the needs that this computer lacks, and that its distribution can have.

    dpkg is asked before apt: a computer with all packages needs neither root nor network. A package that is half there
    is missing, though its programs may be in place.
    """
    needs = tuple(need for need in needs if not need.why_not(system.like))
    found = known(needs, system, admindir=admindir)

    def is_here(need: Need) -> bool:
        packages = need.packages(system.like)
        return found.half.isdisjoint(packages) and (found.whole.issuperset(packages) or need.is_here())

    return tuple(need for need in needs if not is_here(need))


def new_services(needs: Iterable[Need], system: System, *, admindir: Path | None = None) -> tuple[str, ...]:
    """The services that these needs would bring; not those of a package that is half there because it is upgraded."""
    needs = tuple(needs)
    before = known(needs, system, admindir=admindir).before
    new = (need for need in needs if before.isdisjoint(need.packages(system.like)))
    return tuple(service for need in new for service in need.services)


def by_hand(needs: Iterable[Need], system: System) -> str:
    """The one command that installs what these need; without a known distribution what each is for."""
    if system.like is None:
        return "; ".join(f"{need.title} ({need.why})" for need in needs)
    packages = dict.fromkeys(name for need in needs for name in need.packages(system.like))
    option = " --no-install-recommends" if system.like.has_apt else ""
    return f"{system.like.install}{option} {' '.join(packages)}"


def set_up(purpose: str, steps: Steps, *, yes: bool = False) -> bool:
    """Install what a purpose needs; False if nothing was missing.

    Raises ConfigError if that is not possible here or not wanted, HostError or StorageError if it fails, Interrupted,
    and SystemExit with the code of a failed set-up below sudo, which has said why.
    """
    system = this_system()
    lacking = missing(needed(purpose), system)
    if not lacking:
        if os.geteuid() == 0 and left_off():
            with alone(_LOCK, steps):
                _allow_again(steps)
        return False
    if system.like is None:
        raise ConfigError(
            f"{system.title} is unknown to fsjoule, so it cannot install packages here",
            hint=f"install what has these programs and files: {by_hand(lacking, system)}",
        )
    if not system.like.has_apt:
        raise ConfigError(
            f"on {system.title} fsjoule installs no packages, and some are missing",
            hint=f"as root: {by_hand(lacking, system)}",
        )
    if os.geteuid() == 0:
        with alone(_LOCK, steps) as lock:
            _install(purpose, system, steps, yes=yes, lock=lock)
        return True
    if not _may_be_root(steps):
        raise ConfigError(
            f"{len(lacking)} packages are missing, and only root can install them",
            hint=f"once, as root: {by_hand(lacking, system)}",
        )
    words = ["--for", purpose, "--log", str(steps.log), *(["--yes"] if yes else [])]
    environment = [f"PYTHONPATH={_SOURCE}", "PYTHONDONTWRITEBYTECODE=1"]
    python = [sys.executable, "-P", "-m", "fsjoule.host.setup"]
    if code := process.to_its_end(["sudo", "env", *environment, *python, *words], output=steps.show):
        raise SystemExit(code)
    return True


def _may_be_root(steps: Steps) -> bool:
    """Whether sudo works. It asks for a password on the terminal, before the first line of the set-up."""
    if find_program("sudo") is None:
        return False
    if process.run(["sudo", "-n", "true"], timeout_s=_QUERY_S, check=False).returncode == 0:
        return True
    return sys.stdin.isatty() and process.to_its_end(["sudo", "-v"], output=steps.show) == 0


def _install(purpose: str, system: System, steps: Steps, *, yes: bool, lock: int) -> None:
    if _half_done():
        _wait_for_dpkg(steps)
    # Another set-up may have installed it meanwhile.
    lacking = missing(needed(purpose), system)
    services = dict.fromkeys([*left_off(), *new_services(lacking, system)])
    with _not_started(tuple(services), steps):
        if _half_done():
            # Not with the lock: services that dpkg starts would keep it.
            steps.run("what an earlier set-up left half done", ["dpkg", "--configure", "-a"], env=_ENV)
            lacking = missing(needed(purpose), system)
        if lacking:
            _install_packages(lacking, system, steps, yes=yes, lock=lock)


def _install_packages(lacking: Sequence[Need], system: System, steps: Steps, *, yes: bool, lock: int) -> None:
    assert system.like is not None, "it has apt"
    names = [name for need in lacking for name in need.packages(system.like)]
    # Lists that cannot be fetched may be ones that are not needed, or old ones may do. If not, this was why.
    cause = first_cause(steps.run(f"lists of packages of {system.like.title}", [*_APT, "update"], env=_ENV))
    install = ["install", "--no-install-recommends", *names]
    asked = process.run([*_APT, "--assume-no", *install], env=_ENV, timeout_s=_LOCK_S + _QUERY_S, check=False)
    plan = planned((asked.stdout + asked.stderr).decode(errors="replace"))
    if plan is not None:
        _check_space(plan)
    if not yes:
        _ask(plan, system, lacking, steps.show)
    what = f"{len(names)} packages" if plan is None else plan.words
    # apt keeps the lock from dpkg, and so from services.
    steps.run(f"{what} of {system.like.title}", [*_APT, "-y", *install], env=_ENV, pass_fds=[lock], because=cause)


def planned(said: str) -> Installation | None:
    """What apt says that it would install; None if it does not come so far."""
    number = re.search(r"(\d+) newly installed", said)
    # "Need to get 4,711 kB/9,422 kB of archives.", of which the first has still to be fetched.
    fetch = re.search(r"Need to get ([\d,.]+) (\w+)", said)
    disk = re.search(r"After this operation, ([\d,.]+) (\w+) of additional disk space", said)
    if number is None:
        return None

    def megabytes(found: re.Match[str] | None) -> float:
        return float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0) if found else 0.0

    return Installation(int(number[1]), megabytes(fetch), megabytes(disk))


def _check_space(plan: Installation) -> None:
    """Raises StorageError. Packages are fetched to /var, and nearly all that is in them goes to /usr."""
    wanted = {"/usr": plan.disk_mb, "/var": plan.fetch_mb}
    if len({Path(place).stat().st_dev for place in wanted}) == 1:
        wanted = {"/usr and /var": sum(wanted.values())}
    for places, need_mb in wanted.items():
        free_mb = shutil.disk_usage(places.partition(" ")[0]).free / 1e6
        if free_mb < need_mb:
            raise StorageError(
                f"{need_mb:.0f} MB are needed in {places}, and {free_mb:.0f} MB are free",
                hint="make room, then try again; nothing was installed",
            )


def _ask(plan: Installation | None, system: System, lacking: Sequence[Need], show: IO[str]) -> None:
    """Raises ConfigError if the packages are not wanted, or nobody can be asked."""
    assert system.like is not None, "it has apt"
    for need in lacking:
        print(f"  {' '.join(need.packages(system.like)):28} {need.why}", file=show)
    if plan is None:
        question = f"These packages of {system.title}, and what they need; apt does not say how many MB."
    else:
        question = f"{plan.packages} packages of {system.title}, those that these need among them: "
        question += f"{plan.fetch_mb:.0f} MB to fetch, {plan.disk_mb:.0f} MB on disk."
    if not sys.stdin.isatty():
        raise ConfigError("nothing was installed: nobody can be asked", hint="say it before: --yes")
    print(f"{question} Install them? [Y/n] ", end="", file=show, flush=True)
    try:
        answer = input().strip().lower()
    except EOFError:
        answer = "n"
    if answer not in ("", "y", "yes"):
        raise ConfigError("nothing was installed: it was not wanted", hint=f"by hand: {by_hand(lacking, system)}")


def _half_done() -> bool:
    return bool(process.run(["dpkg", "--audit"], timeout_s=_QUERY_S, check=False).stdout.strip())


def _wait_for_dpkg(steps: Steps, *, timeout_s: float = _LOCK_S) -> None:
    """Wait for dpkg, and for apt, which may be at work at this moment: dpkg itself does not wait for others."""
    deadline, told = time.monotonic() + timeout_s, False
    while not all(map(_is_free, _DPKG_LOCKS)):
        if time.monotonic() > deadline:
            raise HostError("dpkg has been installing packages for too long", transient=True, hint="wait for it")
        if not told:
            steps.say(f"dpkg is installing packages; waiting for it, at most {timeout_s:.0f} s")
            told = True
        time.sleep(0.5)


def _is_free(lock: Path) -> bool:
    """Whether no process has this lock of dpkg's, or it was never made."""
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except (BlockingIOError, PermissionError):  # either may tell of a lock (fcntl(2))
        return False
    return True


@contextmanager
def _not_started(services: Sequence[str], steps: Steps) -> Generator[None]:
    """While the body runs, packages do not start these services, unless a policy of this computer's decides.

    If dpkg is still at work when the body has failed, it waits for it. If that takes too long, the policy stays, as one
    of a set-up that was killed. Raises HostError.
    """
    if not services or (_POLICY.exists() and _MARK not in _POLICY.read_text(errors="replace")):
        yield
        return
    fresh = _POLICY.with_name(f"{_POLICY.name}.fsjoule")
    fresh.write_text(_POLICY_TEXT.format(mark=_MARK, services="|".join(services), lock=_LOCK))
    fresh.chmod(0o755)
    fresh.rename(_POLICY)
    try:
        yield
    except BaseException:
        _wait_for_dpkg(steps)  # an apt-get that was ended leaves it behind
        _allow_again(steps)
        raise
    _allow_again(steps)


def _allow_again(steps: Steps) -> None:
    """Take our policy away; what it forbids stays off."""
    if left := left_off():
        _keep_off([service for service in left if any(file.exists() for file in _files(service))], steps)
        _POLICY.unlink()


def _files(service: str) -> tuple[Path, ...]:
    units = (Path(folder) / f"{service}.service" for folder in ("/lib/systemd/system", "/usr/lib/systemd/system"))
    return Path("/etc/init.d", service), *units


def left_off() -> tuple[str, ...]:
    """The services whose start a set-up that was killed has forbidden."""
    try:
        text = _POLICY.read_text(errors="replace")
    except OSError:
        return ()
    listed = re.search(r" in (\S+)\) ;;", text)
    return tuple(listed[1].split("|")) if _MARK in text and listed else ()


def _keep_off(services: Sequence[str], steps: Steps) -> None:
    """Let services that were not there before stay off when the computer starts, those that a socket starts as well."""
    for service in services:
        commands = [["update-rc.d", service, "disable"]]
        if find_program("systemctl"):
            commands.append(["systemctl", "disable", f"{service}.socket"])
        for command in commands:
            done = process.run(command, timeout_s=_QUERY_S, check=False)
            with steps.log.open("ab") as file:
                file.write(b"\n== " + " ".join(command).encode() + b"\n" + done.stdout + done.stderr)
    if services:
        steps.say(
            f"these services are not started, now or with this computer: {', '.join(services)}. "
            f"To have them, as root: systemctl enable --now {' '.join(services)}"
        )
