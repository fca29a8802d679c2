"""A disk of the exporter is examined before it is written: only the board's own disk may be.

A wrong entry in an exporter's file, or a disk that got another's name after it was unplugged, must not cost anybody's
files. The exporter's kernel is asked right before the writer starts.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import attr
from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.process_ref import failing
from fsjoule.lab import disk_program
from fsjoule.lab.translate import lab_errors
from fsjoule.model import MIB

_TIMEOUT_S: Final = 30.0
_TAIL: Final = 300
_HINT: Final = (
    "the exporter's file names the board's disk, disk_serial and disk_link of the flasher say which one it is "
    "(docs/flashing.md)"
)
_LARGEST_MIB: Final = 256 * 1024
_WORDS: Final = ("host", "path", "control_path", "control_serial", "address", "protocol", "internal", "external")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._:][A-Za-z0-9/._:%-]*")

# On the exporter, which has Python for labgrid.
# -I: no module of the folder that it starts in.
PROGRAM: Final = ("python3", "-I", "-")
SOURCE: Final = Path(disk_program.__file__).read_bytes()


@dataclass(frozen=True, slots=True)
class Disk:
    """A path on the exporter, as its kernel and udev describe it.

    `kind` is missing, file, partition or disk; `bus` is usb or other; `backing` is a file's own path, behind links.
    `uses` tells in words where it is in use. `claimed` is true if another program has it for itself, `denied` says why
    it cannot be opened.
    """

    path: str
    kind: str
    size_bytes: int
    bus: str
    serial: str
    links: tuple[str, ...]
    uses: tuple[str, ...]
    claimed: bool
    backing: str = ""
    denied: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the program on the exporter says, see disk_program."""

    disk: Disk
    objection: str
    failure: str
    transient: bool


@dataclass(frozen=True, slots=True)
class BoardsDisk:
    """How the board's own disk is known. `offered_bytes` is the size that the board itself tells, if it does.

    `link` is a name below /dev/disk, for example by-path. Without it and a serial number any USB disk of the right size
    that nobody uses passes, unless it has to be `named`. A simulated board's disk is the card of a virtual lab.
    """

    simulated: bool
    serial: str = ""
    link: str = ""
    largest_bytes: int = _LARGEST_MIB * MIB
    offered_bytes: int | None = None
    named: bool = False

    def request(self, resource: Any, image_bytes: int) -> dict[str, Any]:  # noqa: ANN401 - a labgrid resource
        """What the program on the exporter is asked: whether the resource's disk is the board's, and writes nothing."""
        return {"path": str(resource.path), "wanted": asdict(self), "image_bytes": image_bytes, "image": "", "map": ""}

    def unnamed(self, disk: Disk) -> str:
        """What to add to the environment file, if nothing but its size says that a disk is the board's."""
        if self.simulated or self.serial or self.link:
            return ""
        link = next((each for each in disk.links if "/by-path/" in each), "/dev/disk/by-path/...")
        return f"any free USB disk passes for it: name it by disk_link: {link}"

    def check(self, resource: Any, image_bytes: int) -> Disk:  # noqa: ANN401 - a labgrid resource
        """The resource's disk. Raises LabError if it is not the board's, or is in use."""
        return _asked(resource, self.request(resource, image_bytes))


def look(resource: Any) -> Disk:  # noqa: ANN401 - a labgrid resource
    """Examine the disk of a resource on its exporter. Raises LabError."""
    return _asked(resource, {"path": str(resource.path), "wanted": None})


def _asked(resource: Any, request: dict[str, Any]) -> Disk:  # noqa: ANN401 - a labgrid resource
    doing = f"examining {resource.path}"
    check_words(resource)
    with lab_errors(doing):
        command = resource.wrap_command([*PROGRAM, "fsjoule-looks", json.dumps(request)])
        done = process.run(command, timeout_s=_TIMEOUT_S, input_bytes=SOURCE, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_TAIL:]
        raise LabError(f"{doing} {failing(done.returncode)}: {said}", transient=True)
    return answered(done.stdout, doing)


def answered(said: bytes, doing: str) -> Disk:
    """The disk of an answer. Raises LabError for a disk that is not the board's, a failure, and what is no answer."""
    try:
        # Programs that it starts may have said something before.
        answer = _ANSWER.validate_json(said.strip().rpartition(b"\n")[2])
    except ValidationError as error:
        text = said.decode(errors="replace").strip()[-_TAIL:]
        raise LabError(f"{doing}: the exporter's Python said {text!r}", transient=True) from error
    disk = answer.disk
    if answer.objection:
        none_there = disk.kind == "missing" or (disk.kind == "disk" and not disk.size_bytes)
        what = f"{disk.path} {answer.objection}; nothing was written"
        raise LabError(what, transient=none_there, hint=_HINT)
    if answer.failure:
        raise LabError(f"{doing} failed: {answer.failure}", transient=answer.transient)
    return disk


def check_words(resource: Any) -> None:  # noqa: ANN401 - a labgrid resource
    """Raise LabError for words of an exporter's that would be more than a name to a shell or to ssh.

    labgrid hands some of them to the exporter's shell unquoted: https://github.com/labgrid-project/labgrid,
    USBSDMuxDriver.set_mode. Whoever reaches the coordinator can be an exporter.
    """
    for name in _WORDS:
        word = getattr(resource, name, None)
        if word and not _PLAIN.fullmatch(str(word)):
            raise LabError(
                f"the exporter's {type(resource).__name__} has the {name} {word!r}: no command is given that",
                hint="A-Z, a-z, 0-9 and / . _ : % - are accepted; who has changed the place's exporter?",
            )


def serial_argument() -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default="", validator=attr.validators.instance_of(str))


def link_argument() -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if not isinstance(value, str) or (value and not value.startswith("/dev/disk/by-")):
            raise ValueError("a name below /dev/disk: /dev/disk/by-path/...")

    return attr.ib(default="", validator=check)


def largest_argument() -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=_LARGEST_MIB, validator=[attr.validators.instance_of(int), attr.validators.gt(0)])


_ANSWER: Final[TypeAdapter[_Answer]] = TypeAdapter(_Answer)
