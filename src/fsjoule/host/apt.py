"""Debian packages of a foreign architecture, fetched with a private apt: the host's apt stays untouched.

They come from an `DebianArchive`: a suite of a Debian mirror, also while the mirror is being updated.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.host.process import run_watched, size_mib

_log: Final = logging.getLogger(__name__)

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT_HELPER: Final = "/usr/lib/apt/apt-helper"  # it downloads through the proxies of the host's apt
_DEBIAN_SUITES: Final = frozenset(
    ["bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable"]
)
# What apt says of a list whose size or digest is not the release file's.
_OUT_OF_STEP: Final = re.compile(r"File has unexpected size.*?\)|Hash Sum mismatch")
MIRROR_HINT: Final = "name a Debian mirror: FSJOULE_DEBIAN_MIRROR=http://MIRROR/debian"
_RELEASE_TIMEOUT_S: Final = 60.0
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
class DebianArchive:
    """A suite of a mirror and its components, signed by Debian's keys."""

    mirror: str
    suite: str
    components: Sequence[str] = ("main",)
    check_valid_until: bool = True

    @property
    def line(self) -> str:
        """The line of a sources.list."""
        options = [f"signed-by={_KEYRING}", "target=Packages"]
        if not self.check_valid_until:
            options.append("check-valid-until=no")
        return f"deb [{' '.join(options)}] {self.mirror} {self.suite} {' '.join(self.components)}"

    def fetch(self, attempt: Callable[[DebianArchive], None], before: str = "") -> None:
        """Call `attempt`, once more with the release's other name (stable for trixie) if its lists are out of step.

        A mirror in the midst of an update serves lists that do not belong to their release file. Caches between it and
        this machine may go on for days, often under one of the release's names alone. apt checks the signature either
        way. The line that tells of it begins with `before`. Raises what `attempt` raises, a transient HostError if both
        names are out of step.
        """
        try:
            attempt(self)
        except HostError as error:
            if not (said := _OUT_OF_STEP.search(str(error))):
                raise
            what = f"{self.mirror} serves package lists of {self.suite} that do not belong to its release file"
            hint = f"it may be in the midst of an update: wait an hour, or {MIRROR_HINT}"
            fault = HostError(f"{what}: {said[0]}", hint=hint, transient=True)
            if (other := self._by_other_name()) is None:
                raise fault from error
            _log.info("%s%s; the same release is taken under its name %s", before, what, other.suite)
            try:
                attempt(other)
            except HostError:
                raise fault from error

    def _by_other_name(self) -> DebianArchive | None:
        try:
            release = _release(self.mirror, self.suite)
            names = [release[field] for field in ("Suite", "Codename") if release.get(field, self.suite) != self.suite]
            # The mirror may have moved the name to the next release already.
            if names and _release(self.mirror, names[0]).get("Codename") == release.get("Codename"):
                return replace(self, suite=names[0])
        except HostError:
            pass  # the first cause is what the user reads
        return None


def debian_archive(
    suite: str, components: Sequence[str] = ("main",), *, check_valid_until: bool = True
) -> DebianArchive:
    """A suite of `debian_mirror()`. Raises HostError if the host has no mirror, or lacks Debian's keys."""
    if not _KEYRING.is_file():
        raise HostError(
            f"Debian's archive keys are missing: {_KEYRING}",
            hint="install Debian's package 'debian-archive-keyring': apt-get install debian-archive-keyring",
        )
    return DebianArchive(debian_mirror(), suite, tuple(components), check_valid_until)


def debian_mirror() -> str:
    """The Debian mirror that the host's own apt uses, or `FSJOULE_DEBIAN_MIRROR`. Raises HostError if there is none."""
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
    raise HostError("apt has no Debian mirror among its sources on this machine", hint=MIRROR_HINT)


def _release(mirror: str, name: str) -> dict[str, str]:
    """The one-line fields of a release file, unchecked: they only choose a name, whose signature apt checks."""
    with tempfile.TemporaryDirectory(prefix="fsjoule-release-") as folder:
        file = Path(folder) / "InRelease"
        url = f"{mirror}/dists/{name}/InRelease"
        process.run([_APT_HELPER, "download-file", url, file], timeout_s=_RELEASE_TIMEOUT_S)
        return dict(re.findall(r"^([A-Za-z-]+): (.+)$", file.read_text(errors="replace"), re.MULTILINE))


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

    def update(self) -> None:
        """Fetch the package lists. Raises a transient HostError if the mirror cannot be reached or is out of step."""
        lists = self._folder / "state" / "lists"

        def attempt(archive: DebianArchive) -> None:
            (self._folder / "sources.list").write_text(archive.line + "\n")
            self._apt_get(["update"], _UPDATE_TIMEOUT_S, lambda: f"package lists: {size_mib(lists):.1f} MiB so far")

        self._archive.fetch(attempt)

    def show(self, names: Sequence[str]) -> list[Package]:
        """The newest version of each package, in the given order. Raises HostError if one is not in the archive."""
        shown = process.run(
            ["apt-cache", "-c", self._config, "show", "--no-all-versions", *names], timeout_s=60, check=False
        )
        found = {package.name: package for package in parse_packages(shown.stdout.decode())}
        if missing := [name for name in names if name not in found]:
            raise HostError(f"not in the Debian archive: {', '.join(missing)}", hint=MIRROR_HINT)
        return [found[name] for name in names]

    def download(self, packages: Sequence[Package], into: Path) -> list[Path]:
        """Fetch packages, which apt checks against the signed lists. Returns their files in the same order."""
        total = sum(package.size_bytes for package in packages) / 2**20
        before = size_mib(into)
        self._apt_get(
            ["download", *(f"{package.name}={package.version}" for package in packages)],
            _DOWNLOAD_TIMEOUT_S,
            lambda: f"downloaded {size_mib(into) - before:.0f} of {total:.0f} MiB",
            cwd=into,
        )
        return [next(into.glob(f"{package.name}_*.deb")) for package in packages]

    def _apt_get(
        self, arguments: Sequence[str], timeout_s: float, how_far: Callable[[], str], cwd: Path | None = None
    ) -> None:
        run_watched(
            ["apt-get", "-c", self._config, "-q", *arguments],
            log=self._folder / "apt.log",
            timeout_s=timeout_s,
            how_far=how_far,
            cwd=cwd,
            env={"LC_ALL": "C"},
            transient=True,
        )


def unpack_packages(
    tree: Path,
    packages: Sequence[str],
    *,
    what: str,
    archive: DebianArchive,
    architecture: str,
    log: Path,
    timeout_s: float,
    keep_archives: bool = False,
    further: Sequence[str] = (),
) -> None:
    """Unpack packages and their dependencies with mmdebstrap, as this user's files; none of their scripts runs.

    `what` begins the lines that tell how far it is. With `keep_archives` the .deb files stay below `tree`. Packages
    that the archive's suite lacks come from the suites `further`. Raises a transient HostError, often for the network.
    """

    def attempt(source: DebianArchive) -> None:
        shutil.rmtree(tree, ignore_errors=True)
        run_watched(
            [
                "mmdebstrap",
                "--variant=extract",
                *([] if os.geteuid() == 0 else ["--mode=chrootless"]),
                f"--architectures={architecture}",
                f"--include={','.join(packages)}",
                *(f"--aptopt={option}" for option in _SIGNED),
                *([f'--aptopt=APT::Default-Release "{archive.suite}"'] if further else []),
                *(["--skip=cleanup/apt/cache"] if keep_archives else []),
                archive.suite,
                tree,
                source.line,
                # A snapshot of them may have expired; its signature is still checked.
                *(replace(source, suite=suite, check_valid_until=False).line for suite in further),
            ],
            log=log,
            timeout_s=timeout_s,
            how_far=lambda: f"{what}: {size_mib(tree):.0f} MiB so far",
            env={"TAR_OPTIONS": "--no-same-owner --same-permissions"},
            transient=True,
        )

    archive.fetch(attempt, f"{what}: ")
    # mmdebstrap makes it for root only, and scripts in the tree want a place for their /dev/null.
    (tree / "dev").mkdir(exist_ok=True)
    (tree / "dev").chmod(0o755)


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
