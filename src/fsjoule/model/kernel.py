"""A kernel that was measured, and the order of kernels: 5.10 < 6.1 < 6.12, 6.13-rc7 < 6.13, with Debian revisions.

`version_key` turns Debian's rule for comparing versions (Debian Policy 5.6.12) into a text, so that a database can sort
kernels by bytes. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.model import BoardFacts, KernelFacts, KernelOrigin, Run

_PARTS: Final = re.compile(r"(\D*)(\d*)", re.ASCII)
_DEBIAN_BUILD: Final = re.compile(r"\bDebian (\S+)")
# A release candidate comes before its release; Debian's packages write ~rc, the kernel itself -rc.
_CANDIDATE: Final = re.compile(r"-rc(?=\d)")

_BEFORE_THE_END: Final = " "
_END: Final = "!"
_AFTER_LETTERS: Final = "~"
_DIGEST_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that a board has booted: `release` is `uname -r`, `version` its package's version ("" if unknown).

    Both are needed, because Debian keeps one release for several package versions. The version of a kernel that is not
    Debian's ends with the start of its digest.
    """

    release: str
    version: str

    @property
    def order(self) -> str:
        """A key that sorts kernels by bytes: by release, then by version."""
        return _key(_CANDIDATE.sub("~rc", self.release)) + version_key(self.version)

    @property
    def label(self) -> str:
        return f"{self.release} ({self.version})" if self.version else self.release

    def is_called(self, name: str) -> bool:
        """Whether a user may mean it by this name: 6.1 and 6.1.0-50-armmp are names of one kernel."""
        return bool(name) and (name in (self.version, self.label) or is_of(self.release, name))


def kernels_of(run: Run) -> dict[str, Kernel]:
    """The kernels that a run's board booted and reported, by their labels in the run."""
    facts = {kernel.label: kernel for kernel in run.kernels}
    return {label: _kernel(board, facts.get(label)) for label, board in run.boards.items()}


def _kernel(board: BoardFacts, facts: KernelFacts | None) -> Kernel:
    """The kernel; a built kernel's version gets its digest, because such kernels may share release and version."""
    built = _DEBIAN_BUILD.search(board.kernel_version)
    if facts is None:
        return Kernel(board.kernel_release, built[1] if built else "")
    version = facts.package.partition(" ")[2] or facts.git_describe or (built[1] if built else "")
    if facts.origin is not KernelOrigin.DEBIAN:
        version = f"{version} {facts.digest[:_DIGEST_SHOWN]}".strip()
    return Kernel(board.kernel_release, version)


def is_kernel(kernel: Kernel, facts: KernelFacts) -> bool:
    """Whether a present kernel is the measured one: the same package, or the same content."""
    if facts.release != kernel.release:
        return False
    if facts.origin is not KernelOrigin.DEBIAN:
        return kernel.version.rpartition(" ")[2] == facts.digest[:_DIGEST_SHOWN]
    return kernel.version in ("", facts.package.partition(" ")[2])


def is_of(kernel: str, wanted: str) -> bool:
    """Whether a release is `wanted` or belongs to that version: 6.1.0-50-armmp belongs to 6.1, 6.12.3 does not."""
    return kernel == wanted or (kernel.startswith(wanted) and not kernel[len(wanted)].isalnum())


def version_key(version: str) -> str:
    """A text whose bytes sort as Debian sorts `version`, without epoch, for numbers of up to 99 digits."""
    upstream, dash, revision = version.rpartition("-")
    return _key(upstream if dash else version) + _key(revision if dash else "0")


def _key(text: str) -> str:
    """Words and numbers in turn. No key is the beginning of another, so keys can be joined."""
    return "".join(map(_part, _PARTS.findall(text)))


def _part(part: tuple[str, str]) -> str:
    words, digits = part
    number = digits.lstrip("0")
    if not words and not digits:
        return _END
    return "".join(map(_letter, words)) + _END + f"{len(number):02d}{number}"


def _letter(letter: str) -> str:
    """A tilde sorts before the end of the version, letters before all other characters."""
    if letter == "~":
        return _BEFORE_THE_END
    return letter if letter.isascii() and letter.isalpha() else _AFTER_LETTERS + letter
