"""Debian packages of a foreign architecture, fetched with a private apt: the host's apt stays untouched."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.watched import run_watched, size_mib

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DEBIAN_SUITES: Final = frozenset(
    ["bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable"]
)
_MIRROR_HINT: Final = "name a Debian mirror: FSJOULE_DEBIAN_MIRROR=http://MIRROR/debian"
_UPDATE_TIMEOUT_S: Final = 300.0
_DOWNLOAD_TIMEOUT_S: Final = 900.0

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


def debian_mirror() -> str:
    """The Debian mirror that the host's own apt uses, or `FSJOULE_DEBIAN_MIRROR`. Raises LabError if there is none."""
    if named := os.environ.get("FSJOULE_DEBIAN_MIRROR"):
        return named.rstrip("/")
    listed = process.run(
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"],
        timeout_s=30,
    )
    for line in listed.stdout.decode().splitlines():
        uri, _, rest = line.partition(" ")
        suite, _, component = rest.partition(" ")
        if component == "main" and suite in _DEBIAN_SUITES:
            return uri.rstrip("/")
    raise LabError("apt has no Debian mirror among its sources on this machine", hint=_MIRROR_HINT)


def source_line(
    mirror: str, suite: str, components: Sequence[str] = ("main",), *, check_valid_until: bool = True
) -> str:
    """A sources.list line for these components, signed by Debian's keys. Raises LabError if the host lacks them."""
    if not _KEYRING.is_file():
        raise LabError(
            f"Debian's archive keys are missing: {_KEYRING}",
            hint="install Debian's package 'debian-archive-keyring': apt-get install debian-archive-keyring",
        )
    options = [f"signed-by={_KEYRING}", "target=Packages"]
    if not check_valid_until:
        options.append("check-valid-until=no")
    return f"deb [{' '.join(options)}] {mirror} {suite} {' '.join(components)}"


class PrivateApt:
    """apt for one suite and one architecture, with its whole state below `folder`."""

    def __init__(self, folder: Path, *, source: str, architecture: str) -> None:
        self._folder = folder
        self._config = folder / "apt.conf"
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(source + "\n")
        self._config.write_text(_CONFIG.format(folder=folder, architecture=architecture))

    def update(self, progress: Callable[[str], None]) -> None:
        """Fetch the package lists. Raises a transient LabError if the mirror cannot be reached."""
        lists = self._folder / "state" / "lists"
        self._apt_get(
            ["update"], _UPDATE_TIMEOUT_S, lambda: f"package lists: {size_mib(lists):.1f} MiB so far", progress
        )

    def show(self, names: Sequence[str]) -> list[Package]:
        """The newest version of each package, in the given order. Raises LabError if one is not in the archive."""
        shown = process.run(
            ["apt-cache", "-c", self._config, "show", "--no-all-versions", *names], timeout_s=60, check=False
        )
        found = {package.name: package for package in parse_packages(shown.stdout.decode())}
        if missing := [name for name in names if name not in found]:
            raise LabError(f"not in the Debian archive: {', '.join(missing)}", hint=_MIRROR_HINT)
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
