"""Writes a card image on the exporter. No writer outlives its time limit, an interrupt, or a lost connection.

labgrid's own `write_image` leaves ssh, shell and bmaptool running when its caller gives up. They go on writing a card
that another user may have by then.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from labgrid.util.managedfile import ManagedFile

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.translate import lab_errors, time_limit

_SYNC_TIMEOUT_S: Final = 600.0
_MEDIUM_TIMEOUT_S: Final = 15.0
_LOOK_S: Final = 0.5
# The local side waits this much longer than the exporter's `timeout`, which ends the writer itself.
_GRACE_S: Final = 15.0
_ENDING_TIMEOUT_S: Final = 60.0
# The connection to the exporter may be dead. A search for writers takes a few seconds.
_ENDING_AMID_FAULTS_TIMEOUT_S: Final = 20.0
_DIAGNOSE_S: Final = 3.0
_TAIL: Final = 1000
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
# bmaptool shows where in its code it has failed, before it says why.
_TRACEBACK: Final = re.compile(r"(?:.*traceback:\n)?Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*")
_DD: Final = ("dd", "oflag=direct", "bs=4M", "conv=fdatasync")

# Ends every process of the exporter that was started to write this card, and waits until they are gone. No process of
# the script has the card's name as an argument, so it does not find itself. One grep searches all command lines:
# programs for each of them would take a small computer seconds.
_END_WRITERS: Final = """\
card={card} tries=0
writers() {{
    printf '%s\\nof=%s\\n' "$card" "$card" | grep -lzxsF -f - /proc/[0-9]*/cmdline | cut -d / -f 3
}}
while left=$(writers); [ -n "$left" ]; do
    [ $tries -ge 40 ] && {{ echo $left; exit 1; }}
    kill -9 $left 2>/dev/null
    tries=$((tries + 1))
    sleep 0.25
done
"""


class StillWritingError(LabError):
    """A writer could not be ended: the card must stay where it is."""


class _GivenUpError(LabError):
    """A dead or stopped program prevents writing the card."""


def write_card(
    storage: Any,  # noqa: ANN401 - a labgrid USBStorageDriver
    image: Path,
    limit_s: int,
    diagnose: Callable[[], tuple[str, ...]] = tuple,
    check: Callable[[], None] = lambda: None,
    *,
    amid_faults_s: float = _ENDING_AMID_FAULTS_TIMEOUT_S,
) -> None:
    """Write an image, with its block map if it has one. After it returns or raises, nobody writes the card any more.

    After a diagnosis the search for writers may take `amid_faults_s`.
    `check` raises for a disk that is not the board's. It raises soon after `diagnose` reports a dead program.
    Raises LabError, and StillWritingError if a writer neither finishes nor can be ended.
    """
    resource = storage.storage
    # A killed earlier run may have left a writer.
    end_writers(resource, str(resource.path))
    doing = f"copying {image.name} to the exporter"
    with time_limit(_SYNC_TIMEOUT_S, doing, diagnose), lab_errors(f"copying {image.name}"):
        there = on_exporter(image, resource)
        block_map = image.with_name(f"{image.name}.bmap")
        writer = [*_DD, f"if={there}", f"of={resource.path}"]
        if block_map.exists():
            writer = ["bmaptool", "copy", f"--bmap={on_exporter(block_map, resource)}", there, resource.path]
    _await_medium(storage, diagnose)
    check()
    run_writer(
        *(resource, str(resource.path), writer),
        limit_s=limit_s,
        doing=f"writing {image.name}",
        diagnose=diagnose,
        amid_faults_s=amid_faults_s,
    )


def run_writer(
    resource: Any,  # noqa: ANN401 - a labgrid resource
    card: str,
    writer: list[str],
    *,
    limit_s: int,
    doing: str,
    diagnose: Callable[[], tuple[str, ...]],
    amid_faults_s: float = _ENDING_AMID_FAULTS_TIMEOUT_S,
) -> None:
    """Run a program on the exporter that has `card` among its arguments; nobody has afterwards.

    Raises as `write_card` does, with the last output of the program.
    """
    with lab_errors(doing):
        command = resource.wrap_command(["timeout", "-k", "5", str(limit_s), *writer])
    begin_s = time.monotonic()
    try:
        exit_code, said = _run(command, limit_s + _GRACE_S, doing, diagnose)
    except BaseException as error:
        _end_after(resource, card, error, amid_faults_s if isinstance(error, _GivenUpError) else _ENDING_TIMEOUT_S)
        raise
    if exit_code != 0:
        # The time tells, not the exit code: `timeout` has several codes for its limit, and ssh has its own.
        late = time.monotonic() - begin_s >= limit_s
        why = f"took longer than {limit_s} s" if late else f"failed with exit code {exit_code}: {said}"
        failure = LabError(f"{doing} {why}", transient=True)
        _end_after(resource, card, failure, _ENDING_TIMEOUT_S)
        raise failure


def end_writers(resource: Any, card: str, limit_s: float = _ENDING_TIMEOUT_S) -> None:  # noqa: ANN401 - a labgrid resource
    """End all writers of the card on the exporter. Raises StillWritingError, and LabError without contact."""
    script = _END_WRITERS.format(card=shlex.quote(card))
    with lab_errors("looking for programs that write the card"):
        command = resource.wrap_command(["sh", "-c", script])
    done = process.run(command, timeout_s=limit_s, check=False)
    if done.returncode == 1 and (left := done.stdout.decode(errors="replace").split()):
        raise StillWritingError(
            f"process {', '.join(left)} of the exporter writes the card and cannot be ended",
            hint="the card reader may hang: pull it out, or restart the exporter's computer",
        )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_TAIL:]
        raise LabError(f"the exporter does not tell who writes the card: {said}", transient=True)


def _end_after(resource: Any, card: str, error: BaseException, limit_s: float) -> None:  # noqa: ANN401 - a labgrid resource
    try:
        end_writers(resource, card, limit_s)
    except StillWritingError as still:
        raise StillWritingError(f"{error}; {still.what}", hint=still.hint) from error
    except LabError as unknown:
        error.add_note(f"it is not known whether the card is still being written: {unknown.what}")


def _run(
    command: list[str], limit_s: float, doing: str, diagnose: Callable[[], tuple[str, ...]]
) -> tuple[int | None, str]:
    """Run to the end: exit code (None after the limit) and last output. Raises _GivenUpError after a diagnosis."""
    deadline = time.monotonic() + limit_s
    exit_code: int | None = None
    with tempfile.TemporaryFile() as log:
        # No code may run between fork and exec: labgrid's gRPC threads would abort the child there. If this process is
        # killed, the exporter's `timeout` or the next run ends the writer.
        child = process.start(command, log=log, die_with_parent=False)
        try:
            while exit_code is None and (left_s := deadline - time.monotonic()) > 0:
                with suppress(subprocess.TimeoutExpired):
                    exit_code = child.wait(min(_DIAGNOSE_S, left_s))
                if exit_code is None and (causes := diagnose()):
                    error = _GivenUpError(f"{doing} was given up", transient=True)
                    error.blame(causes)
                    raise error
        finally:
            process.stop(child, timeout_s=1.0)
        log.seek(0)
        return exit_code, _said(log.read().decode(errors="replace"))


def _said(output: str) -> str:
    """What a program has said of its failure, without colours and without its own code."""
    return _TRACEBACK.sub("", _COLOURS.sub("", output.replace("\r", "\n"))).strip()[-_TAIL:]


def on_exporter(file: Path, resource: Any) -> str:  # noqa: ANN401 - a labgrid resource
    """The file's path on the exporter. It is copied there unless it is on the same disk."""
    managed = ManagedFile(str(file), resource)  # pyright: ignore[reportCallIssue] - attrs without types
    managed.sync_to_resource()
    return str(managed.get_remote_path())


def _await_medium(storage: Any, diagnose: Callable[[], tuple[str, ...]]) -> None:  # noqa: ANN401 - a USBStorageDriver
    """Wait until the reader sees its card. Raises LabError."""
    doing = "looking for the card in its reader"
    with time_limit(_MEDIUM_TIMEOUT_S + _GRACE_S, doing, diagnose), lab_errors(doing):
        deadline = time.monotonic() + _MEDIUM_TIMEOUT_S
        while storage.get_size() == 0:
            if time.monotonic() > deadline:
                raise LabError(f"the reader {storage.storage.path} sees no card", transient=True)
            time.sleep(_LOOK_S)
