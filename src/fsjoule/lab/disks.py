"""A disk of the exporter is examined before it is written: only the board's own disk may be.

A wrong entry in an exporter's file, or a disk that got another's name after it was unplugged, must not cost anybody's
files. The exporter's kernel is asked right before the writer starts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import attr
from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.translate import lab_errors
from fsjoule.model import MIB

_TIMEOUT_S: Final = 30.0
_TAIL: Final = 300
_LARGEST_MIB: Final = 256 * 1024
_WORDS: Final = ("host", "path", "control_path", "control_serial", "address", "protocol")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._:][A-Za-z0-9/._:%-]*")

# Runs on the exporter, which has Python for labgrid. An exclusive open fails while anything of the disk is mounted,
# swapped to or part of another device, in whatever container.
_LOOK: Final = r"""
import errno, glob, json, os, stat, sys
path = os.path.realpath(sys.argv[1])
found = {"path": sys.argv[1], "kind": "missing", "uses": [], "links": [], "serial": "", "size_bytes": 0,
         "bus": "", "claimed": False}
def text(name):
    try:
        with open(name) as file:
            return file.read().strip()
    except OSError:
        return ""
if os.path.exists(path):
    status = os.stat(path)
    found["kind"] = "file"
    if stat.S_ISBLK(status.st_mode):
        number = "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
        system = os.path.realpath("/sys/dev/block/" + number)
        found["kind"] = "partition" if os.path.exists(system + "/partition") else "disk"
        found["size_bytes"] = int(text(system + "/size") or 0) * 512
        found["bus"] = "usb" if "/usb" in system else "loop" if os.path.exists(system + "/loop") else "other"
        for line in text("/run/udev/data/b" + number).splitlines():
            if line.startswith("E:ID_SERIAL_SHORT="):
                found["serial"] = line.partition("=")[2]
        found["links"] = sorted(e for e in glob.glob("/dev/disk/by-*/*") if os.path.realpath(e) == path)
        parts = {number: os.path.basename(system)}
        for each in glob.glob(system + "/*/partition"):
            folder = os.path.dirname(each)
            parts[text(folder + "/dev")] = os.path.basename(folder)
        for line in text("/proc/self/mountinfo").splitlines():
            words = line.split()
            name = words[words.index("-") + 2].rpartition("/")[2]
            if words[2] in parts or name in parts.values():
                found["uses"].append("%s is mounted on %s" % (parts.get(words[2], name), words[4]))
        for line in text("/proc/swaps").splitlines()[1:]:
            name = os.path.basename(line.split()[0])
            if name in parts.values():
                found["uses"].append(name + " is swap space")
        for name in parts.values():
            for holder in glob.glob("/sys/class/block/%s/holders/*" % name):
                found["uses"].append("%s is part of %s" % (name, os.path.basename(holder)))
        try:
            os.close(os.open(path, os.O_RDWR | os.O_EXCL))
        except OSError as error:
            found["claimed"] = error.errno == errno.EBUSY
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Disk:
    """A path on the exporter, as its kernel and udev describe it.

    `kind` is missing, file, partition or disk; `bus` is usb, loop or other; `uses` tells in words where it is in use.
    `claimed` is true if another program has it for itself.
    """

    path: str
    kind: str
    size_bytes: int
    bus: str
    serial: str
    links: tuple[str, ...]
    uses: tuple[str, ...]
    claimed: bool


@dataclass(frozen=True, slots=True)
class BoardsDisk:
    """How the board's own disk is known. `offered_bytes` is the size that the board itself tells, if it does.

    `link` is a name below /dev/disk, for example by-path. Without one, and without a serial number, any USB disk of the
    right size that nobody uses passes. A loop device passes only for a simulated board.
    """

    simulated: bool
    serial: str = ""
    link: str = ""
    largest_bytes: int = _LARGEST_MIB * MIB
    offered_bytes: int | None = None

    def objection(self, disk: Disk, image_bytes: int) -> str | None:
        """Why `disk` must not be written, or None."""
        if disk.kind != "disk":
            return {"missing": "does not exist", "file": "is not a disk"}.get(disk.kind, f"is a {disk.kind}, no disk")
        if disk.uses or disk.claimed:
            return f"is in use on the exporter: {', '.join(disk.uses) or 'another program has it for itself'}"
        if not disk.size_bytes:
            return "has no medium"
        return self._identity_objection(disk) or self._size_objection(disk.size_bytes, image_bytes)

    def _identity_objection(self, disk: Disk) -> str | None:
        if disk.bus != "usb" and not (disk.bus == "loop" and self.simulated):
            return "is not a USB disk"
        if self.serial and disk.serial != self.serial:
            return f"has the serial number {disk.serial or '(none)'}, not {self.serial}"
        if self.link and self.link not in disk.links:
            return f"is not {self.link}"
        return None

    def _size_objection(self, size_bytes: int, image_bytes: int) -> str | None:
        if self.offered_bytes is not None and size_bytes != self.offered_bytes:
            return f"has {size_bytes} bytes, but the board offers {self.offered_bytes}: it is another disk"
        if size_bytes > self.largest_bytes:
            return f"has {size_bytes // MIB} MiB, more than the largest card ({self.largest_bytes // MIB} MiB)"
        if size_bytes < image_bytes:
            return f"has {size_bytes} bytes, but the image has {image_bytes}"
        return None

    def check(self, resource: Any, image_bytes: int) -> None:  # noqa: ANN401 - a labgrid resource
        """Raise LabError if the resource's disk is not the board's, or is in use."""
        disk = look(resource)
        objection = self.objection(disk, image_bytes)
        if objection is not None:
            raise LabError(
                f"{disk.path} {objection}; nothing was written",
                transient=disk.kind == "missing" or (disk.kind == "disk" and not disk.size_bytes),
                hint="the exporter's file names the board's disk, disk_serial and disk_link of the flasher say which "
                "one it is (docs/flashing.md)",
            )


def look(resource: Any) -> Disk:  # noqa: ANN401 - a labgrid resource
    """Examine the disk of a resource on its exporter. Raises LabError."""
    doing = f"examining {resource.path}"
    with lab_errors(doing):
        command = resource.wrap_command(["python3", "-c", _LOOK, str(resource.path)])
    done = process.run(command, timeout_s=_TIMEOUT_S, check=False)
    try:
        return _DISK.validate_python(json.loads(done.stdout))
    except (ValueError, ValidationError) as error:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_TAIL:]
        raise LabError(f"{doing} failed with exit code {done.returncode}: {said}", transient=True) from error


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


_DISK: Final[TypeAdapter[Disk]] = TypeAdapter(Disk)
