"""A kernel compiled with tuxmake, in a kept build folder, so that the next revision compiles only what differs.

The result is the same as from a fresh folder, however the last compilation there ended. A killed compiler may leave
half a file that is newer than its source, so all files of a killed compilation are removed. What kconfig writes stays:
it renames whole files, auto.conf last (scripts/kconfig/confdata.c), and without that file everything is compiled again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import FsjouleError, HostError, KernelBuildError, StorageError
from fsjoule.host import process
from fsjoule.host.extras import need
from fsjoule.host.process import ExitError, run_watched
from fsjoule.host.setup.needs import needed_programs
from fsjoule.kernels.configuration import Configuration, parse_config
from fsjoule.model.labels import counted

_log: Final = logging.getLogger(__name__)

TIMEOUT_S: Final = 4 * 3600.0
_COMPILER: Final = "arm-linux-gnueabihf-gcc"
_CCACHE: Final = "ccache"
_LOG: Final = "tuxmake.log"
_MARKER: Final = ".unfinished"
_KCONFIGS: Final = ("include/config", "include/generated/autoconf.h", "include/generated/rustc_cfg")
_LITTLE_BYTES: Final = 8 * 2**20

# Time, place and user do not go into the kernel, nor anything of the commit except its content.
_EPOCH: Final = "946684800"
ENVIRONMENT: Final = {
    "KBUILD_BUILD_TIMESTAMP": "Sat Jan  1 00:00:00 UTC 2000",
    "KBUILD_BUILD_USER": "fsjoule",
    "KBUILD_BUILD_HOST": "fsjoule",
    "KBUILD_BUILD_VERSION": "1",
    "SOURCE_DATE_EPOCH": _EPOCH,
    "LOCALVERSION": "",
}
# Variables that make would inherit.
CLEARED: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KCPPFLAGS", "KAFLAGS", "ARCH", "CROSS_COMPILE")

_ERROR: Final = re.compile(r"\berror: |\*\*\*|undefined reference|syntax error", re.IGNORECASE)
# Faults of this machine: another machine would build it.
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_MEMORY: Final = re.compile(r"Killed signal terminated program|Cannot allocate memory|memory exhausted")
_NO_TOOL: Final = re.compile(r"sh: (?:line )?\d+: ([\w.+-]+): (?:command )?not found")


@dataclass(frozen=True, slots=True)
class Compilation:
    """One kernel: `source` is checked out, its files come into the folder `into`.

    Only one at a time may use a build folder. `nice` is the priority of its programs.
    """

    source: Path
    build: Path
    into: Path
    configuration: Configuration
    jobs: int
    nice: int = 0

    def configured(self) -> dict[str, str]:
        """Symbol -> value in the source's own configuration. Raises like `compile`."""
        with self._undisturbed():
            # tuxmake would use an existing configuration. make itself compares it with the one before.
            (self.build / ".config").unlink(missing_ok=True)
            self._tuxmake("config")
        return parse_config((self.build / ".config").read_text(errors="replace"))

    def compile(self) -> None:
        """Compile the configured source.

        Raises KernelBuildError if the source does not build, and HostError if this machine is at fault: a full disk, a
        missing program.
        """
        with self._undisturbed():
            self._tuxmake("kernel", "modules", "dtbs")
        (self.into / _LOG).unlink()  # build.log has the same

    def _tuxmake(self, *targets: str) -> None:
        need("bench", "tuxmake")
        log = self.into / _LOG
        maps = (f"-ffile-prefix-map={self.build}/=", f"-ffile-prefix-map={self.source}/=")
        environment = {**ENVIRONMENT, "KCFLAGS": " ".join((*maps, *self.configuration.compiler_options))}
        # The objects are the same with the compiler's cache.
        wrapper = [f"--wrapper={_CCACHE}"] if shutil.which(_CCACHE) else []
        command = [
            *(sys.executable, "-m", "tuxmake", "--runtime=null", "--fail-fast", "--verbose", f"--jobs={self.jobs}"),
            *(f"--directory={self.source}", f"--build-dir={self.build}", f"--output-dir={self.into}"),
            *("--target-arch=armhf", "--toolchain=gcc", *wrapper, *self._configuring()),
            *(f"--environment={name}={value}" for name, value in environment.items()),
            *targets,
        ]
        try:
            run_watched(
                command,
                log=log,
                timeout_s=TIMEOUT_S,
                how_far=lambda: _how_far(log),
                env=dict.fromkeys(CLEARED, ""),
                nice=self.nice,
            )
        except ExitError as error:
            raise self._failure(log.read_text(errors="replace").splitlines()) from error

    def _configuring(self) -> list[str]:
        wanted = self.configuration
        base = wanted.base
        if wanted.frozen:
            file = self.build / "frozen.config"
            file.write_text(wanted.frozen)
            base = str(file)
        files = [self.build / f"fragment-{number}.config" for number in range(len(wanted.fragments))]
        for file, text in zip(files, wanted.fragments, strict=True):
            file.write_text(text)
        return [f"--kconfig={base}", *(f"--kconfig-add={file}" for file in files)]

    def _failure(self, lines: list[str]) -> FsjouleError:
        """The error by tuxmake's log: the source's or this machine's fault."""
        if fault := machine_fault("\n".join(lines), self.build, self.into):
            return fault
        errors = [line.strip().replace(f"{self.source}/", "") for line in error_lines(lines)]
        return KernelBuildError(
            "the kernel does not build:\n" + "\n".join((errors or lines)[-12:]),
            reason=(errors or lines[-1:] or ["tuxmake failed and said nothing"])[0],
            hint=f"to build by hand: source {self.source}, O={self.build}; to start again: fsjoule kernel clean",
        )

    @contextmanager
    def _undisturbed(self) -> Generator[None]:
        """Remove the files of a killed compilation first; mark the folder while the body runs."""
        marker = self.build / _MARKER
        self.build.mkdir(exist_ok=True)
        if marker.exists():
            _log.info("kernel build: removing the files of an interrupted build")
            begun_ns = marker.stat().st_mtime_ns
            for path in self.build.rglob("*"):
                with suppress(FileNotFoundError):
                    new = not path.is_dir() and path.lstat().st_mtime_ns >= begun_ns
                    if new and not any(path.is_relative_to(self.build / each) for each in _KCONFIGS):
                        path.unlink()
        marker.touch()
        try:
            yield
        except KernelBuildError:  # make ended by itself and removed unfinished files
            marker.unlink(missing_ok=True)
            raise
        marker.unlink()


def machine_fault(text: str, *folders: Path) -> HostError | None:
    """What is wrong with this machine if a build into these folders failed and said `text`; None if the source is."""
    if _FULL.search(text) or any(disk.f_bavail * disk.f_frsize < _LITTLE_BYTES for disk in map(os.statvfs, folders)):
        hint = "make room; fsjoule kernel clean removes built kernels and their build folders"
        return StorageError(f"the disk is full: {folders[0]}", hint=hint)
    if _MEMORY.search(text):
        hint = "build with fewer --jobs, or end what else takes memory"
        return HostError("the memory is not enough for the compiler", transient=True, hint=hint)
    if missing := _NO_TOOL.search(text):
        return HostError(f"the build needs the program {missing[1]!r}", hint="install it")
    return None


def error_lines(lines: Sequence[str]) -> list[str]:
    """The lines of a build's log that tell errors."""
    return [line for line in lines if _ERROR.search(line)]


def compiler_version() -> str:
    """The compiler's version. Raises MissingToolError for the first missing tool of a build."""
    for tool in needed_programs("kernels"):
        process.find_tool(tool)
    return process.run([_COMPILER, "--version"], timeout_s=30).stdout.decode().splitlines()[0]


def _how_far(log: Path) -> str:
    """The number of compiled files and the present one. The total is unknown: it depends on what is up to date."""
    objects = re.findall(r"^ +(?:CC|AS|LD|AR|DTC)[ \[].*$", log.read_text(errors="replace"), re.MULTILINE)
    progress = f"{counted(len(objects), 'file')}, {objects[-1].split()[-1]}" if objects else "configuring"
    return f"kernel build: {progress}"
