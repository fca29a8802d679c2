"""Writes a card image on the exporter. No writer outlives its time limit, an interrupt, or a lost connection.

labgrid's own `write_image` leaves ssh, shell and writer running when its caller gives up. They go on writing a card
that another user may have by then.
"""

from __future__ import annotations

import json
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
from fsjoule.host.process_ref import failing
from fsjoule.lab.disks import PROGRAM, SOURCE, BoardsDisk, answered, check_words, look
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
_TAIL: Final = 8000  # an answer has all names of a disk
_PACKED: Final = (".gz", ".xz", ".zst", ".bz2")

# Ends every process of the exporter that has this word as an argument, and waits until they are gone. No process of the
# script has it, so it does not find itself. One grep searches all command lines: programs for each of them would take a
# small computer seconds.
_END_WRITERS: Final = """\
word={word} tries=0
writers() {{
    printf '%s\\n' "$word" | grep -lzxsF -f - /proc/[0-9]*/cmdline | cut -d / -f 3
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
    wanted: BoardsDisk,
    diagnose: Callable[[], tuple[str, ...]] = tuple,
    *,
    verify: bool = True,
    amid_faults_s: float = _ENDING_AMID_FAULTS_TIMEOUT_S,
) -> None:
    """Write an image, also one packed by gzip, xz or zstd, through its block map if it has one, and read it back.

    Another disk than the `wanted` one is not touched. After it returns or raises, nobody writes the card any more. It
    raises soon after `diagnose` reports a dead program; the search for writers may then take `amid_faults_s`.
    Raises LabError, and StillWritingError if a writer neither finishes nor can be ended.
    """
    resource = storage.storage
    check_words(resource)
    # A killed earlier run may have left a writer.
    end_writers(resource, writers_word(resource))
    doing = f"copying {image.name} to the exporter"
    with time_limit(_SYNC_TIMEOUT_S, doing, diagnose), lab_errors(f"copying {image.name}"):
        there = on_exporter(image, resource)
        block_map = block_map_of(image)
        map_there = "" if block_map is None else on_exporter(block_map, resource)
    _await_medium(resource, diagnose)
    # A packed image's size is known to its block map, or at its end.
    least = 0 if image.suffix in _PACKED else image.stat().st_size
    request = wanted.request(resource, least) | {"image": there, "map": map_there, "verify": verify}
    doing = f"writing {image.name}"
    said = run_writer(
        *(resource, writers_word(resource), [*PROGRAM, writers_word(resource), json.dumps(request)]),
        limit_s=limit_s,
        doing=doing,
        diagnose=diagnose,
        amid_faults_s=amid_faults_s,
        program=SOURCE,
    )
    answered(said.encode(), doing)


def writers_word(resource: Any) -> str:  # noqa: ANN401 - a labgrid resource
    """The argument by which a writer of this card is found among all processes of the exporter."""
    return f"fsjoule-writes:{resource.path}"


def block_map_of(image: Path) -> Path | None:
    """The block map beside an image: IMAGE.bmap, or with fewer suffixes as Yocto's, as bmaptool looks for it."""
    stem = image
    while not (found := stem.with_name(f"{stem.name}.bmap")).exists():
        if not stem.suffix:
            return None
        stem = stem.with_suffix("")
    return found


def run_writer(
    resource: Any,  # noqa: ANN401 - a labgrid resource
    word: str,
    writer: list[str],
    *,
    limit_s: int,
    doing: str,
    diagnose: Callable[[], tuple[str, ...]],
    amid_faults_s: float = _ENDING_AMID_FAULTS_TIMEOUT_S,
    program: bytes = b"",
) -> str:
    """Run a program on the exporter that has `word` among its arguments; nobody has afterwards.

    `program` is its input. Returns the end of its output. Raises as `write_card` does, with that.
    """
    with lab_errors(doing):
        command = resource.wrap_command(["timeout", "-k", "5", str(limit_s), *writer])
    begin_s = time.monotonic()
    try:
        exit_code, said = _run(command, limit_s + _GRACE_S, doing, diagnose, program)
    except BaseException as error:
        _end_after(resource, word, error, amid_faults_s if isinstance(error, _GivenUpError) else _ENDING_TIMEOUT_S)
        raise
    if exit_code != 0:
        # The time tells, not the exit code: `timeout` has several codes for its limit, and ssh has its own.
        late = time.monotonic() - begin_s >= limit_s
        why = f"took longer than {limit_s} s" if late or exit_code is None else f"{failing(exit_code)}: {said}"
        failure = LabError(f"{doing} {why}", transient=True)
        _end_after(resource, word, failure, _ENDING_TIMEOUT_S)
        raise failure
    return said


def end_writers(resource: Any, word: str, limit_s: float = _ENDING_TIMEOUT_S) -> None:  # noqa: ANN401 - a labgrid resource
    """End all processes of the exporter that have `word` as an argument, which only writers of the card have.

    Raises StillWritingError, and LabError without contact.
    """
    script = _END_WRITERS.format(word=shlex.quote(word))
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


def _end_after(resource: Any, word: str, error: BaseException, limit_s: float) -> None:  # noqa: ANN401 - a labgrid resource
    try:
        end_writers(resource, word, limit_s)
    except StillWritingError as still:
        raise StillWritingError(f"{error}; {still.what}", hint=still.hint) from error
    except LabError as unknown:
        error.add_note(f"it is not known whether the card is still being written: {unknown.what}")


def _run(
    command: list[str], limit_s: float, doing: str, diagnose: Callable[[], tuple[str, ...]], program: bytes
) -> tuple[int | None, str]:
    """Run to the end: exit code (None after the limit) and last output. Raises _GivenUpError after a diagnosis."""
    deadline = time.monotonic() + limit_s
    exit_code: int | None = None
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as given:
        given.write(program)
        given.seek(0)
        # No code may run between fork and exec: labgrid's gRPC threads would abort the child there. If this process is
        # killed, the exporter's `timeout` or the next run ends the writer.
        child = process.start(command, log=log, stdin=given, die_with_parent=False)
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
        return exit_code, log.read().decode(errors="replace").strip()[-_TAIL:]


def on_exporter(file: Path, resource: Any) -> str:  # noqa: ANN401 - a labgrid resource
    """The file's path on the exporter. It is copied there unless it is on the same disk."""
    managed = ManagedFile(str(file), resource)  # pyright: ignore[reportCallIssue] - attrs without types
    managed.sync_to_resource()
    return str(managed.get_remote_path())


def _await_medium(resource: Any, diagnose: Callable[[], tuple[str, ...]]) -> None:  # noqa: ANN401 - a labgrid resource
    """Wait until the reader sees its card. Raises LabError."""
    doing = "looking for the card in its reader"
    with time_limit(_MEDIUM_TIMEOUT_S + _GRACE_S, doing, diagnose), lab_errors(doing):
        deadline = time.monotonic() + _MEDIUM_TIMEOUT_S
        while look(resource).size_bytes == 0:
            if time.monotonic() > deadline:
                raise LabError(f"the reader {resource.path} sees no card", transient=True)
            time.sleep(_LOOK_S)
