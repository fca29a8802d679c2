"""Writes a run folder, one whole measurement after another, with the checksums of its files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import weakref
from collections.abc import Collection, Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import PARTIAL_SUFFIX, flush_folder, write_file
from fsjoule.host.inside import ATTACHMENT_BYTES, list_inside, read_inside, wrong_name
from fsjoule.host.interrupts import shielded
from fsjoule.host.json_text import json_text
from fsjoule.host.limits import of_limit
from fsjoule.model import Measurement, Run, Trace
from fsjoule.store.files import remove_folder, write_folder
from fsjoule.store.schemas import MEASUREMENT, RUN, encode
from fsjoule.store.traces import encode_trace

RUN_FILE: Final = "run.json"
MEASUREMENTS_FOLDER: Final = "measurements"
MEASUREMENT_FILE: Final = "measurement.json"
TRACE_FILE: Final = "trace.parquet"
# The SHA-256 of each file of a measurement, as sha256sum(1) writes and checks them. They tell that a file was edited,
# exchanged or lost after it was stored. They are no signature: whoever can write to the folder can write them again, or
# remove them; a measurement without any is read.
CHECKSUMS_FILE: Final = "SHA256SUMS"
_CHECKSUM: Final = re.compile(r"([0-9a-f]{64}) [ *](.+)")
GATE_FILE: Final = "gate.json"  # the answer of the gate that measured this run
PAGE: Final = "report.html"  # the run's page, which report writes
FETCHED: Final = ".fetched-"  # begins the name of a folder with a run that is being fetched
# The start time, the board and the run's id.
RUN_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-[^/]+-[a-z0-9]+")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?=-)")


class RunFolder:
    """A ports.ResultStore that keeps one run in its own folder below `results_dir`.

    While it is open the folder is locked (flock), which tells a reader that the run was not killed. `board` names the
    folder if the run has no board facts at its begin. It writes through descriptors: whoever owns the results may put a
    link in the folder's place, which a run of root's must not follow.
    """

    def __init__(self, results_dir: Path, *, board: str = "board") -> None:
        self._results_dir = results_dir
        self._board = board
        self._path: Path | None = None
        self._inside = self._measurements = Path()  # by descriptor
        self._run: Run | None = None
        self._stored: dict[int, str] = {}
        self._unlock: weakref.finalize[..., RunFolder] | None = None

    @classmethod
    def reopened(cls, path: Path, numbers: AbstractSet[int]) -> RunFolder:
        """The folder of a resumed run. Whole measurements stay; incompletely written ones are removed.

        `numbers` are the measurements that the caller knows. Raises ResultError if it has others, or if another
        process writes to it.
        """
        folder = cls(path.parent)
        measurements = path / MEASUREMENTS_FOLDER
        with _storing(f"the run {path.name}", path):
            try:
                folder._open(path, wait=False)
            except BlockingIOError as error:
                raise ResultError(f"{path} is being measured right now", hint="wait for it, or stop it") from error
            if measurements.is_symlink():
                raise ResultError(f"{measurements} is a symbolic link", hint="put the folder itself in its place")
            folder._open_measurements()
            # A link is not a folder of ours, and rmtree would refuse it.
            for name in list_inside(path, MEASUREMENTS_FOLDER).folders:
                if name.endswith(PARTIAL_SUFFIX):
                    shutil.rmtree(folder._measurements / name)
        names = list_inside(path, MEASUREMENTS_FOLDER).folders
        folder._stored = {number: name for name in names if (number := measurement_number(name)) is not None}
        if folder._stored.keys() != numbers or len(folder._stored) != len(names):
            raise ResultError(f"{path} was changed meanwhile", hint="try again")
        folder._path = path
        return folder

    @staticmethod
    def holds(path: Path, name: str) -> bool:
        """Whether the run folder at `path` has a completely written measurement of this name."""
        return not name.endswith(PARTIAL_SUFFIX) and name in list_inside(path, MEASUREMENTS_FOLDER).folders

    @property
    def path(self) -> Path:
        """The run folder. Raises ResultError before `begin`."""
        if self._path is None:
            raise ResultError("the run has not begun: it has no folder yet")
        return self._path

    def begin(self, run: Run) -> None:
        """Make the run folder, unless it was reopened. Raises StorageError if that fails; there is no folder then."""
        if self._path is not None:
            self._write_run(run)
            return
        name = folder_name(run, self._board)
        path = self._results_dir / name
        with _storing(f"the run {name}", self._results_dir):
            self._results_dir.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        try:
            with _storing(f"the run {path.name}", self._results_dir):
                self._open(path)
                self._open_measurements()
                flush_folder(self._inside)
                flush_folder(self._results_dir)
            self._path = path
            self._write_run(run)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            self._path = None
            raise

    def update(self, run: Run) -> None:
        """Keep facts that became known after `begin` (board, image, meter, phases)."""
        self._write_run(run)

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        """Store one measurement durably. Raises StorageError (disk full); earlier measurements are then unchanged."""
        # Whole: a signal neither loses what was measured nor leaves a measurement that run.json does not name.
        with shielded():
            self._add(measurement, trace, attachments)

    def _add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        name = f"{measurement.number:02d}-{measurement.slug}"
        if measurement.number in self._stored:
            raise ResultError(f"{self.path} already holds a measurement {measurement.number}")
        files = {MEASUREMENT_FILE: encode(MEASUREMENT, measurement, f"measurement {name}")}
        if trace is not None:
            files[TRACE_FILE] = encode_trace(trace)
        for attachment, content in attachments.items():
            if attachment in (*files, CHECKSUMS_FILE) or Path(attachment).name != attachment:
                raise ResultError(f"an attachment cannot be named {attachment!r}", hint="use another plain name")
            files[attachment] = content
        files[CHECKSUMS_FILE] = encode_checksums(files)
        with _storing(f"measurement {name}", self.path):
            write_folder(self._measurements / name, files)
        self._stored[measurement.number] = name
        if self._run is not None:
            self._write_run(self._run, known=True)

    def withdraw(self, numbers: Collection[int]) -> None:
        """Remove these measurements, because their boot is measured again. Raises StorageError if that fails.

        A reader sees each of them whole or not at all.
        """
        with shielded(), _storing("what is measured again", self.path):
            names = [self._stored.pop(number) for number in numbers]
            if self._run is not None:
                self._write_run(self._run, known=True)
            for name in names:
                remove_folder(self._measurements / name)

    def keep(self, name: str, content: bytes) -> None:
        """Write a file beside run.json, or replace it. Raises StorageError if that fails."""
        with _storing(name, self.path):
            write_file(self._inside / name, content)

    def take(self, name: str) -> bytes | None:
        """The content of a file beside run.json, which is removed; None without one.

        Raises StorageError, ResultError.
        """
        content = read_inside(self._inside, name, at_most=ATTACHMENT_BYTES)
        if content is not None:
            with _storing(name, self.path):
                (self._inside / name).unlink()
        return content

    def finish(self, run: Run) -> None:
        """Write the run's last state, and unlock the folder in any case. Raises StorageError if that fails."""
        try:
            self._write_run(run)
        finally:
            if self._unlock is not None:
                self._unlock()

    def _open(self, path: Path, *, wait: bool = True) -> None:
        # A folder that was just made, for which `wait` is set, is no link; one to go on with may be named by a link.
        lock = os.open(path, _FOLDER | (os.O_NOFOLLOW if wait else 0))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._unlock = weakref.finalize(self, os.close, lock)
        # Another one: what is kept after the run is written through it, too.
        self._inside = self._by_descriptor(f"/proc/self/fd/{lock}", _FOLDER)

    def _open_measurements(self) -> None:
        name = self._inside / MEASUREMENTS_FOLDER
        name.mkdir(exist_ok=True)
        self._measurements = self._by_descriptor(str(name), _FOLDER | os.O_NOFOLLOW)

    def _by_descriptor(self, path: str, flags: int) -> Path:
        """A path that leads to this folder, whatever becomes of its names."""
        descriptor = os.open(path, flags)
        weakref.finalize(self, os.close, descriptor)
        return Path(f"/proc/self/fd/{descriptor}")

    def _write_run(self, run: Run, *, known: bool = False) -> None:
        indexed = replace(run, measurements=tuple(name for _, name in sorted(self._stored.items())))
        # A known run was checked to be readable, and a measurement adds only its name. Reading a plan of thousands of
        # entries back takes longer than all else.
        content = json_text(RUN.adapter, indexed, indent=2) if known else encode(RUN, indexed, "the run")
        with _storing(RUN_FILE, self.path):
            write_file(self._inside / RUN_FILE, content)
        self._run = indexed


def folder_name(run: Run, board: str) -> str:
    """`<UTC time>-<board>-<id>` in characters that every shell and filesystem accepts."""
    parts = (re.sub(r"[-:]", "", run.started_utc), run.board.name if run.board else board, run.run_id)
    return "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", part) for part in parts)


def board_name(run: Run, folder: Path) -> str:
    """The name of a run's board; without board facts it comes from the folder's name."""
    return run.board.name if run.board else folder.name.partition("-")[2].removesuffix(f"-{run.run_id}")


def measurement_number(name: str) -> int | None:
    """The number at the beginning of the name of a measurement's folder, if any."""
    match = _NUMBER.match(name)
    return int(match[0]) if match else None


def is_being_written(path: Path) -> bool:
    """Whether a RunFolder, in this process or another, has the run folder at `path` open."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


@contextmanager
def _storing(what: str, folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        limit, room = of_limit(error), "make room on that disk, or choose another folder with --results"
        why, hint = (error.strerror or error, room) if limit is None else (limit.what, limit.hint)
        raise StorageError(
            f"{what} could not be stored in {folder}: {why}", hint=f"{hint}; earlier measurements are whole"
        ) from error


def encode_checksums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items())).encode()


def decode_checksums(content: bytes) -> dict[str, str]:
    """Read the output of `encode_checksums`: digests by name. Raises ResultError if it is damaged."""
    digests: dict[str, str] = {}
    for number, text in enumerate(content.decode(errors="replace").splitlines(), start=1):
        line = _CHECKSUM.fullmatch(text)
        if line is None or wrong_name(line[2]):
            raise ResultError(f"{CHECKSUMS_FILE} is damaged: line {number} is no checksum of a file")
        digests[line[2]] = line[1]
    return digests


def altered(content: bytes | None, digest: str | None) -> str | None:
    """What has become of a file that was stored with this digest: it is missing, or edited. None if it is the same."""
    if digest is None:
        return None
    if content is None:
        return "is missing"
    edited = f"was edited after it was stored: its SHA-256 is not that of {CHECKSUMS_FILE}"
    return None if _sha256(content) == digest else edited


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
