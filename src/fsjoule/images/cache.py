"""The cache of build stages: `<cache>/images/<stage>/<name>-<key>/`.

An entry is built in a temporary folder beside its place and renamed into it when it is whole, under a lock of its own.
So an entry that can be seen is complete, and two builders never build the same one. The key is a digest of everything
that goes into the stage; what is no longer asked for stays until `clean`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import LabError
from fsjoule.paths import cache_dir

Progress = Callable[[str], None]

# In the order of building.
STAGES: Final = ("emulator", "dkms", "kernel", "userland", "partition", "card")
LOCK_TIMEOUT_S: Final = 1800.0
_ENTRY_FILE: Final = "entry.json"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One built stage. `name` says what for (`imx6ul-6.1-ext4`), `size_bytes` is what it takes on the disk."""

    stage: str
    name: str
    key: str
    path: Path
    created_utc: str
    size_bytes: int


def images_cache() -> Path:
    """The folder of all stages; made if absent."""
    path = cache_dir() / "images"
    path.mkdir(exist_ok=True)
    return path


def cache_key(inputs: Mapping[str, Any]) -> str:
    """A digest of everything that goes into a stage; equal for equal content, whatever the order of the keys."""
    canonical = json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:16]


def folder_digest(folder: Path) -> str:
    """A digest of the names, modes and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        executable = bool(path.stat().st_mode & 0o100)
        header = json.dumps([path.relative_to(folder).as_posix(), executable, path.stat().st_size])
        digest.update(header.encode() + path.read_bytes())
    return digest.hexdigest()


def build_once(
    stage: str,
    name: str,
    key: str,
    build: Callable[[Path], None],
    *,
    progress: Progress,
    root: Path | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> Path:
    """The folder of a stage's result; `build` is called with an empty folder to fill if there is none yet.

    Raises LabError when another process holds the entry's lock for longer than `lock_timeout_s`, and whatever `build`
    raises; nothing is left in the cache then.
    """
    folder = (root or images_cache()) / stage
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{name}-{key}"
    if final.is_dir():
        return final
    with locked(folder / f".{final.name}.lock", f"{stage} {name}", progress, lock_timeout_s):
        if final.is_dir():
            return final
        for leftover in folder.glob(f".{final.name}.part-*"):  # of a builder that was killed: we hold its lock
            shutil.rmtree(leftover)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{final.name}.part-", dir=folder))
        try:
            unfinished.chmod(0o755)
            build(unfinished)
            created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            entry = {"stage": stage, "name": name, "key": key, "created_utc": created}
            (unfinished / _ENTRY_FILE).write_text(json.dumps(entry, indent=2) + "\n")
            unfinished.rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final


def cached(root: Path | None = None, stages: Iterable[str] = STAGES) -> list[CacheEntry]:
    """All complete entries, by stage and name."""
    base = root or images_cache()
    files = [file for stage in stages for file in sorted((base / stage).glob(f"[!.]*/{_ENTRY_FILE}"))]
    return [_read_entry(file) for file in files]


def clean(entries: Iterable[CacheEntry], *, progress: Progress) -> int:
    """Remove entries; returns the bytes set free. Raises LabError for one that is being built again right now."""
    freed = 0
    for entry in entries:
        lock = entry.path.parent / f".{entry.path.name}.lock"
        with locked(lock, f"{entry.stage} {entry.name}", progress, timeout_s=5.0):
            # Renamed first: a removal that is interrupted must not leave half an entry in its place.
            doomed = entry.path.parent / f".{entry.path.name}.part-removed"
            shutil.rmtree(doomed, ignore_errors=True)
            entry.path.rename(doomed)
            shutil.rmtree(doomed)
            lock.unlink(missing_ok=True)
        progress(f"removed {entry.stage} {entry.name} ({entry.size_bytes / 2**20:.0f} MiB)")
        freed += entry.size_bytes
    return freed


def _read_entry(file: Path) -> CacheEntry:
    stored = json.loads(file.read_text())
    size = sum(path.lstat().st_blocks * 512 for path in file.parent.rglob("*"))
    return CacheEntry(**stored, path=file.parent, size_bytes=size)


@contextmanager
def locked(lock: Path, what: str, progress: Progress, timeout_s: float) -> Generator[None]:
    """Hold an exclusive lock that the kernel drops when this process ends, however it ends."""
    deadline = time.monotonic() + timeout_s
    said = 0.0
    while True:
        handle = lock.open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            now = time.monotonic()
            if now > deadline:
                raise LabError(
                    f"another process (pid {holder}) has been building {what} for more than {timeout_s:.0f} s",
                    transient=True,
                    hint=f"wait for it, or end it; the lock is {lock}",
                ) from None
            if now > said + 10:
                progress(f"waiting for another process (pid {holder}) which is building {what}")
                said = now
            time.sleep(0.2)
            continue
        if _is_same_file(handle.fileno(), lock):
            break
        handle.close()  # `clean` removed the file between open and lock
    try:
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
    finally:
        handle.close()


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
