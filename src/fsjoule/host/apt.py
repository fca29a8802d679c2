"""Debian packages of a foreign architecture, fetched with a private apt: the host's apt stays untouched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.debian_archive import MIRROR_HINT, DebianArchive
from fsjoule.host.watched import run_watched, size_mib

_UPDATE_TIMEOUT_S: Final = 300.0
_DOWNLOAD_TIMEOUT_S: Final = 900.0

# Whatever the host's own configuration allows: root unpacks and boots these packages.
_SIGNED: Final = (
    'Acquire::AllowInsecureRepositories "false"',
    'Acquire::AllowWeakRepositories "false"',
    'Acquire::AllowDowngradeToInsecureRepositories "false"',
    'APT::Get::AllowUnauthenticated "false"',
)

# The host's own configuration is read first, for its proxies. Its hooks and lists are cleared here.
_CONFIG: Final = """\
#clear APT::Update;
#clear APT::Architectures;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear DPkg;
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
"""


@dataclass(frozen=True, slots=True)
class Package:
    """One package of an archive. `depends`: names in Depends and Pre-Depends, with alternatives."""

    name: str
    version: str
    size_bytes: int
    sha256: str
    depends: tuple[str, ...]


class PrivateApt:
    """apt for one suite and one architecture, with its whole state below `folder`."""

    def __init__(self, folder: Path, *, archive: DebianArchive, architecture: str) -> None:
        self._folder = folder
        self._archive = archive
        self._config = folder / "apt.conf"
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        self._config.write_text(
            _CONFIG.format(folder=folder, architecture=architecture) + "".join(f"{each};\n" for each in _SIGNED)
        )

    def update(self, progress: Callable[[str], None]) -> None:
        """Fetch the package lists. Raises a transient LabError if the mirror cannot be reached or is out of step."""
        lists = self._folder / "state" / "lists"

        def attempt(archive: DebianArchive) -> None:
            (self._folder / "sources.list").write_text(archive.line + "\n")
            self._apt_get(
                ["update"], _UPDATE_TIMEOUT_S, lambda: f"package lists: {size_mib(lists):.1f} MiB so far", progress
            )

        self._archive.fetch(attempt, progress)

    def show(self, names: Sequence[str]) -> list[Package]:
        """The newest version of each package, in the given order. Raises LabError if one is not in the archive."""
        shown = process.run(
            ["apt-cache", "-c", self._config, "show", "--no-all-versions", *names], timeout_s=60, check=False
        )
        found = {package.name: package for package in parse_packages(shown.stdout.decode())}
        if missing := [name for name in names if name not in found]:
            raise LabError(f"not in the Debian archive: {', '.join(missing)}", hint=MIRROR_HINT)
        return [found[name] for name in names]

    def download(self, packages: Sequence[Package], into: Path, progress: Callable[[str], None]) -> list[Path]:
        """Fetch packages, which apt checks against the signed lists. Returns their files in the same order."""
        total = sum(package.size_bytes for package in packages) / 2**20
        before = size_mib(into)
        self._apt_get(
            ["download", *(f"{package.name}={package.version}" for package in packages)],
            _DOWNLOAD_TIMEOUT_S,
            lambda: f"downloaded {size_mib(into) - before:.0f} of {total:.0f} MiB",
            progress,
            cwd=into,
        )
        return [next(into.glob(f"{package.name}_*.deb")) for package in packages]

    def _apt_get(
        self,
        arguments: Sequence[str],
        timeout_s: float,
        how_far: Callable[[], str],
        progress: Callable[[str], None],
        cwd: Path | None = None,
    ) -> None:
        run_watched(
            ["apt-get", "-c", self._config, "-q", *arguments],
            log=self._folder / "apt.log",
            timeout_s=timeout_s,
            how_far=how_far,
            progress=progress,
            cwd=cwd,
            env={"LC_ALL": "C"},
            transient=True,
        )


def unpack_packages(
    tree: Path,
    packages: Sequence[str],
    *,
    archive: DebianArchive,
    architecture: str,
    log: Path,
    timeout_s: float,
    keep_archives: bool = False,
    progress: Callable[[str], None],
) -> None:
    """Unpack packages and their dependencies with mmdebstrap; none of their scripts runs.

    `progress` gets a line every 5 s. With `keep_archives` the .deb files stay below `tree`. Raises a transient
    LabError, often for the network.
    """

    def attempt(source: DebianArchive) -> None:
        shutil.rmtree(tree, ignore_errors=True)
        run_watched(
            [
                "mmdebstrap",
                "--variant=extract",
                f"--architectures={architecture}",
                f"--include={','.join(packages)}",
                *(f"--aptopt={option}" for option in _SIGNED),
                *(["--skip=cleanup/apt/cache"] if keep_archives else []),
                archive.suite,
                tree,
                source.line,
            ],
            log=log,
            timeout_s=timeout_s,
            how_far=lambda: f"{size_mib(tree):.0f} MiB so far",
            progress=progress,
            transient=True,
        )

    archive.fetch(attempt, progress)


def parse_packages(text: str) -> list[Package]:
    return [_package(fields) for paragraph in text.split("\n\n") if (fields := control_fields(paragraph))]


def control_fields(paragraph: str) -> dict[str, str]:
    matches = re.finditer(r"^([A-Za-z0-9-]+):[ \t]*(.*(?:\n[ \t].*)*)", paragraph, re.MULTILINE)
    return {match[1]: match[2] for match in matches}


def dependencies(fields: dict[str, str]) -> tuple[str, ...]:
    relations = ",".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields)
    names = [re.split(r"[\s(:\[]", part.strip(), maxsplit=1)[0] for part in re.split(r"[,|]", relations)]
    return tuple(name for name in names if name)


def _package(fields: dict[str, str]) -> Package:
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        size_bytes=int(fields["Size"]),
        sha256=fields["SHA256"],
        depends=dependencies(fields),
    )
