"""The one door for starting programs of the host: argument lists only, always with a time limit.

`run_watched` is for long steps of a build: it logs its progress, and its program ends with this process.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Final

from fsjoule.errors import ConfigError, HostError, MissingToolError
from fsjoule.host.interrupts import Interrupted, check_cancelled, heard
from fsjoule.host.process_ref import ending, failing
from fsjoule.host.setup.needs import find_program, package_of

_log: Final = logging.getLogger(__name__)

_NAMESPACE_TIMEOUT_S: Final = 60.0
_SIGNAL_EXIT: Final = 128  # of a shell, plus the signal's number
SAY_EVERY_S: Final = 5.0
_GUARD: Final = """
import os, signal, sys
with os.fdopen(int(sys.argv[1]), "rb") as line:
    group = line.readline()
    line.read()  # returns when the other end's process has ended
try:
    if group:
        os.killpg(int(group), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


def find_tool(name: str) -> str:
    """The absolute path of a program. Raises MissingToolError with the package to install."""
    found = find_program(name)
    if found is None:
        raise MissingToolError(name, *package_of(name))
    return found


def as_root(argv: Sequence[str | Path]) -> list[str | Path]:
    """The command for a program to which this user's files are root's: unless root asks, it runs in a user namespace.

    Raises MissingToolError.
    """
    command = [find_tool(str(argv[0])), *argv[1:]]
    return command if os.geteuid() == 0 else ["unshare", "--map-root-user", *command]


def check_as_root(what: str) -> None:
    """Raise ConfigError unless `as_root` works on this computer, HostError if it does not answer in time."""
    try:
        run(as_root(["true"]), timeout_s=_NAMESPACE_TIMEOUT_S)
    except HostError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"{what} by root, or in a user namespace, which this computer refuses: {error.what}",
            hint="let root allow them (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, "
            "kernel.unprivileged_userns_clone=1, user.max_user_namespaces), run the same command with sudo, or use "
            "images that were built elsewhere (fsjoule image import)",
        ) from error


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    input_bytes: bytes | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and return its output. Raises MissingToolError, HostError (timeout; non-zero exit with `check`)."""
    command = [find_tool(str(argv[0])), *map(str, argv[1:])]
    try:
        done = subprocess.run(  # noqa: S603 - argument lists only
            command,
            cwd=cwd,
            env=_environment(env),
            input=input_bytes,
            stdin=subprocess.DEVNULL if input_bytes is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{' '.join(command)} took longer than {timeout_s:.0f} s", transient=True) from error
    if check and done.returncode != 0:
        detail = (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]
        raise HostError(f"{' '.join(command)} {failing(done.returncode)}{f': {detail}' if detail else ''}")
    return done


def _environment(changes: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """This process's environment with changes; None removes a variable."""
    if changes is None:
        return None
    return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}


@contextmanager
def _output(log: Path | IO[bytes] | None) -> Generator[IO[bytes] | int]:
    if isinstance(log, Path):
        with log.open("ab") as opened:
            yield opened
    else:
        yield subprocess.DEVNULL if log is None else log


def start(
    argv: Sequence[str | Path],
    *,
    log: Path | IO[bytes] | None = None,
    stdin: IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    pass_fds: Sequence[int] = (),
    stderr: int = subprocess.STDOUT,
    new_session: bool = True,
    die_with_parent: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a long-lived program in its own process group; its output is appended to `log`. Its input is empty.

    With `stdin` its input is this file, from its present position. With `stderr` its errors go to this descriptor.

    With `die_with_parent` the kernel sends it SIGTERM when the thread that started it ends for any reason: call it from
    a thread that lives as long as the program should.
    """
    # None of our code may run between fork and exec: labgrid's gRPC threads would abort the child there.
    wrapper = [find_tool("setpriv"), "--pdeathsig", "TERM"] if die_with_parent else []
    command = [*wrapper, find_tool(str(argv[0])), *map(str, argv[1:])]
    with _output(log) as output:
        return subprocess.Popen(  # noqa: S603 - argument lists only
            command,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=stderr,
            cwd=cwd,
            env=_environment(env),
            pass_fds=tuple(pass_fds),
            start_new_session=new_session,
        )


def check_program(name: str) -> None:
    """Raise ConfigError if the program, a name on the PATH or a path, cannot be started."""
    if shutil.which(name) is None:
        why = "no such program" if not Path(name).exists() else "it is not executable, or a folder"
        raise _cannot_be_run(name, why)


def to_its_end(argv: Sequence[str], *, output: IO[str] | None = None) -> int:
    """Run a program on this one's terminal, with its input and signals, as a shell does; its output may go elsewhere.

    Returns its exit code as a shell does: 128 plus the number of a signal that killed it. Ctrl-C reaches the program
    directly and is left to it. SIGTERM and SIGHUP are passed on, even during its start. Raises ConfigError if it cannot
    be started, and Interrupted at its end after a signal that it may not get: sudo is root's.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    refused: list[int] = []

    def send(number: int) -> None:
        try:
            started[0].send_signal(number)
        except PermissionError:
            refused.append(number)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            return
        if started:
            send(number)
        else:
            early.append(number)

    with heard(pass_on):
        try:
            program = subprocess.Popen(list(argv), stdout=output)  # noqa: S603 - argument lists only
        except OSError as error:
            raise _cannot_be_run(argv[0], error.strerror or str(error)) from error
        started.append(program)
        for number in early:
            send(number)
        code = program.wait()
    if refused:
        raise Interrupted(refused[0])
    return code if code >= 0 else _SIGNAL_EXIT - code


def _cannot_be_run(name: str, why: str) -> ConfigError:
    return ConfigError(f"{name!r} cannot be run: {why}", hint="give a program and its arguments")


def held_back(
    argv: Sequence[str], *, env: Mapping[str, str | None] | None = None
) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
    """Start a program on this one's output, in a process group of its own; it begins when the function is called.

    If this process ends before that, it does not begin, and ends with exit code 4. Its input is empty. Raises
    MissingToolError.
    """
    program = subprocess.Popen(  # noqa: S603 - argument lists only; the text is fixed
        [find_tool("sh"), "-c", 'read -r _ || exit 4; exec "$@" </dev/null', "sh", *argv],
        stdin=subprocess.PIPE,
        env=_environment(env),
        process_group=0,
    )

    def go() -> None:
        assert program.stdin is not None, "it is a pipe"
        try:
            program.stdin.write(b"\n")
            program.stdin.close()
        except BrokenPipeError:
            pass  # it was ended before

    return program, go


def stop(process: subprocess.Popen[bytes], *, timeout_s: float = 5.0) -> None:
    """End a program from `start` with its whole process group: SIGTERM, then SIGKILL."""
    for sig, wait_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            signal_group(process.pid, sig)
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue
    # The group may outlive its leader (ser2net below a killed exporter).
    signal_group(process.pid, signal.SIGKILL)


def signal_group(pgid: int, sig: signal.Signals) -> None:
    """Send a signal to a group of processes, if there is one of ours."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, sig)


class ExitError(HostError):
    """The program ended by itself, with a failure."""


def run_watched(
    argv: Sequence[str | Path],
    *,
    log: Path,
    timeout_s: float,
    how_far: Callable[[], str],
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    transient: bool = False,
    nice: int = 0,
) -> None:
    """Run a program to its end, its output in `log`, and log `how_far()` every 5 s.

    `nice` is its least niceness. Raises ExitError (`transient` as given) with the end of the log if it fails, HostError
    if a signal ends it or it takes longer than `timeout_s`, and what ends this
    thread's waits (`interrupts.cancel_with`); it is ended then.
    """
    started = said = time.monotonic()
    # This process may be killed at any moment: the guard is there first, and the program names its group by itself.
    guard, line = _group_guard()
    try:
        named = ["bash", "-c", f'echo $$ >&{line}; exec "$@" {line}>&-', "bash", find_tool(str(argv[0]))]
        child = start([*named, *argv[1:]], log=log, cwd=cwd, env=env, pass_fds=(line,))
    except BaseException:
        stop(guard)
        os.close(line)
        raise
    try:
        if nice > os.getpriority(os.PRIO_PROCESS, 0):
            with suppress(ProcessLookupError):  # it has ended
                os.setpriority(os.PRIO_PGRP, child.pid, nice)
        while child.poll() is None:
            now = time.monotonic()
            if now - started > timeout_s:
                raise HostError(f"{argv[0]} took longer than {timeout_s:.0f} s", transient=True)
            if now - said >= SAY_EVERY_S:
                check_cancelled()
                _log.info("%s", how_far())
                said = now
            time.sleep(0.05)
    finally:
        stop(guard)
        os.close(line)
        stop(child)
    if child.returncode < 0:
        raise HostError(f"{argv[0]} {ending(child.returncode)}", transient=transient)
    if child.returncode != 0:
        tail = log.read_text(errors="replace").strip()[-2000:]
        raise ExitError(f"{argv[0]} {failing(child.returncode)}: {tail}", transient=transient)


def _group_guard() -> tuple[subprocess.Popen[bytes], int]:
    """A process that ends a process group when this process has ended in any way, and the pipe for the group's number.

    The kernel ends only the program itself with us, not its children: compilers below make, apt below mmdebstrap.
    """
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", _GUARD, str(reader)]
        return start(command, pass_fds=(reader,), die_with_parent=False), writer
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)


def size_mib(*paths: Path) -> float:
    """MiB of all files below the given files and folders; files may come and go while it counts."""
    total = 0
    for top in paths:
        for path in [top, *top.rglob("*")]:
            try:
                total += path.lstat().st_blocks * 512
            except OSError:
                continue
    return total / 2**20
