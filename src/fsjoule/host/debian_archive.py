"""A suite of a Debian mirror, as apt and mmdebstrap name it, also while the mirror is being updated."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT_HELPER: Final = "/usr/lib/apt/apt-helper"  # it downloads through the proxies of the host's apt
_DEBIAN_SUITES: Final = frozenset(
    ["bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable"]
)
# What apt says of a list whose size or digest is not the release file's.
_OUT_OF_STEP: Final = re.compile(r"File has unexpected size.*?\)|Hash Sum mismatch")
MIRROR_HINT: Final = "name a Debian mirror: FSJOULE_DEBIAN_MIRROR=http://MIRROR/debian"
_RELEASE_TIMEOUT_S: Final = 60.0


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

    def fetch(self, attempt: Callable[[DebianArchive], None], progress: Callable[[str], None]) -> None:
        """Call `attempt`, once more with the release's other name (stable for trixie) if its lists are out of step.

        A mirror in the midst of an update serves lists that do not belong to their release file. Caches between it and
        this machine may go on for days, often under one of the release's names alone. apt checks the signature either
        way. Raises what `attempt` raises, a transient LabError if both names are out of step.
        """
        try:
            attempt(self)
        except LabError as error:
            if not (said := _OUT_OF_STEP.search(str(error))):
                raise
            what = f"{self.mirror} serves package lists of {self.suite} that do not belong to its release file"
            hint = f"it may be in the midst of an update: wait an hour, or {MIRROR_HINT}"
            fault = LabError(f"{what}: {said[0]}", hint=hint, transient=True)
            if (other := self._by_other_name()) is None:
                raise fault from error
            progress(f"{what}; the same release is taken under its name {other.suite}")
            try:
                attempt(other)
            except LabError:
                raise fault from error

    def _by_other_name(self) -> DebianArchive | None:
        try:
            release = _release(self.mirror, self.suite)
            names = [release[field] for field in ("Suite", "Codename") if release.get(field, self.suite) != self.suite]
            # The mirror may have moved the name to the next release already.
            if names and _release(self.mirror, names[0]).get("Codename") == release.get("Codename"):
                return replace(self, suite=names[0])
        except LabError:
            pass  # the first cause is what the user reads
        return None


def debian_archive(
    suite: str, components: Sequence[str] = ("main",), *, check_valid_until: bool = True
) -> DebianArchive:
    """A suite of `debian_mirror()`. Raises LabError if the host has no mirror, or lacks Debian's keys."""
    if not _KEYRING.is_file():
        raise LabError(
            f"Debian's archive keys are missing: {_KEYRING}",
            hint="install Debian's package 'debian-archive-keyring': apt-get install debian-archive-keyring",
        )
    return DebianArchive(debian_mirror(), suite, tuple(components), check_valid_until)


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
    raise LabError("apt has no Debian mirror among its sources on this machine", hint=MIRROR_HINT)


def _release(mirror: str, name: str) -> dict[str, str]:
    """The one-line fields of a release file, unchecked: they only choose a name, whose signature apt checks."""
    with tempfile.TemporaryDirectory(prefix="fsjoule-release-") as folder:
        file = Path(folder) / "InRelease"
        url = f"{mirror}/dists/{name}/InRelease"
        process.run([_APT_HELPER, "download-file", url, file], timeout_s=_RELEASE_TIMEOUT_S)
        return dict(re.findall(r"^([A-Za-z-]+): (.+)$", file.read_text(errors="replace"), re.MULTILINE))
