"""A filesystem as data: the fields of a row of `fsjoule.filesystems`, and the programs that result from it."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from fsjoule.errors import ConfigError
from fsjoule.model.age import Age
from fsjoule.model.medium import Medium
from fsjoule.model.version import parse_version

_LONGEST_FILE_NAME: Final = 60
_ROOM_KIB: Final = 16384  # beside the files of an image that shrinks afterwards


@dataclass(frozen=True, slots=True)
class Variant:
    """Options on top of a filesystem's own: `make` comes before the device, `mount` is for -o. `note` is for people.

    `kconfig` are symbols without which a kernel cannot mount it, `modules` further modules. With `verity` each block is
    checked that is read.
    """

    note: str
    make: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    kconfig: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    verity: bool = False


@dataclass(frozen=True, slots=True)
class Root:
    """How a card's root partition gets the filesystem, without mounting anything on the host.

    `make` is the host's program. It is empty if no program of the host can copy files into the filesystem: then the
    emulated board makes it, with `Filesystem.make`, and copies the files. `options` are part of this root's series; a
    recipe can have others. `extended` joins the value of their last -E, because mke2fs takes only one. `target` ends
    the program's arguments; `copy` is a program that copies the files. `{image}` is the partition, `{tree}` the folder
    of its files, `{prototype}` their list for mkfs.xfs.

    A block map leaves holes out, so the card keeps its old content there. A journal, log or checkpoint in a hole would
    come from an earlier life of the same image, with the same UUID, ready to be replayed. So zeros are written wherever
    the filesystem reads before it writes: by `make`, or into all holes with `fill_holes`.
    """

    options: tuple[str, ...] = ()
    make: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    extended: str = ""
    target: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    fill_holes: bool = True
    mount_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """How a program lists the runs of free space: `argv`, with `{device}` or, if `mounted`, the device's `{name}`.

    `pattern` finds runs, or groups of equal ones: `length` in units of `unit_bytes`, or with a `suffix` of K, M or G;
    their `count`, by default 1, and their `percent` of the free space, by default what follows from the two. A list
    with the text `incomplete` lacks some.
    """

    argv: tuple[str, ...]
    pattern: str
    unit_bytes: int = 1
    incomplete: str = ""
    mounted: bool = False


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One filesystem. Programs are argument lists; `check` and `repair` end with the device, which is left out here.

    `make` overwrites the device, which is of the kind `medium`, without asking; after its options comes `target`, then
    the program `after_make`. `before_make` is a line of shell that comes first. One on raw flash may write
    into the `spare_area` of pages itself.
    `mount` and `unmount` default to mount(8) and umount(8); unmounting leaves everything on the device, nothing in
    memory. It needs a device of `least_bytes`. `{device}` and `{directory}` stand for themselves, `{options}` for
    -o with the options, if any. A filesystem that `keeps_cache` has its own cache, which survives dropping the
    kernel's caches. `check` changes nothing and is
    empty without a checker; `repair` mends as much as it can without asking. `packages` are Debian's with its programs,
    `modules` are kernel modules, `kconfig` are the symbols (without `CONFIG_`) that build them in. If Debian's kernels
    lack the modules, they are built from the package `dkms`. `lacks` are features that suites must do without; one that
    is `raw` has none, and is the device itself. `identity` sets a UUID (`{uuid}`, or its first digits, `{hex:.8}`); it
    does not make another series. `root` is how a card's root partition gets it. `errors` finds the kernel's messages,
    as a regular expression of POSIX (extended) and of Python. `colours` are for charts, on light and on dark; without
    them it gets a spare colour. `variants` are options worth measuring, by name. `joined` are options of `make` whose
    last value counts, so that values are joined; with one of `idle` the program does not make the whole filesystem,
    with one of `files` it reads or writes a file beside. `since` has options of `make` and mount that older kernels do
    not know, each with the first version of Linux that does. `kernels` says which kernels have the modules, if not all
    do. The packages of one that is `unreleased` are in no release of Debian: a recipe names their suite.
    `free_space` lists the runs of its free space. With an `age` its use is replayed once it is made.

    A filesystem with `read_only` is made at once from a folder, by the host or the board, and never written:
    `read_only` are the arguments of its program, `make[0]`. `{options}` stands for the other words of `make` with
    `identity`, `{tree}` for the folder, `{image}` for the file that it becomes, `{room_kib}` for the most KiB it may
    have. Then `after_make` may shrink the `{image}`. It can always be a card's root, unless it is for raw flash.
    `write` is the shell that brings the image, `$1`, onto the device, `$2` (default: it copies it). With `verity`
    dm-verity checks its blocks. `needs` are the symbols of the chosen variants.
    """

    name: str
    kernel_type: str
    make: tuple[str, ...]
    medium: Medium = Medium.BLOCK
    spare_area: bool = False
    before_make: str = ""
    target: tuple[str, ...] = ("{device}",)
    after_make: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    unmount: tuple[str, ...] = ("umount", "{directory}")
    keeps_cache: bool = False
    mount_options: tuple[str, ...] = ()
    least_bytes: int = 0
    check: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    kconfig: tuple[str, ...] = ()
    dkms: str = ""
    raw: bool = False
    read_only: tuple[str, ...] = ()
    write: str = ""
    verity: bool = False
    needs: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    root: Root | None = None
    errors: str = ""
    colours: tuple[str, str] | None = None
    variants: Mapping[str, Variant] = field(default_factory=dict[str, Variant])
    joined: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: Mapping[str, str] = field(default_factory=dict[str, str])
    kernels: str = ""
    unreleased: bool = False
    free_space: FreeSpace | None = None
    age: Age | None = None

    def check_kernel(self, label: str, release: str, options: Iterable[str] | None = None) -> None:
        """Raise ConfigError for `options` (default: its own) that a kernel of this release does not know.

        A kernel that does not say its version is not judged.
        """
        words = (*self.make, *self.mount_options) if options is None else options
        values = (word.partition("=")[2] if word.startswith("--") else word for word in words)
        for option in dict.fromkeys(part for value in values for part in value.split(",")):
            if (first := self.since.get(option)) and () < parse_version(release) < parse_version(first):
                raise ConfigError(
                    f"the kernel {label} does not know {option}, with which {self.name} would be made or mounted: "
                    f"Linux has it since {first}",
                    hint="leave the option out, or choose a newer kernel; nothing was made or erased",
                )

    def make_argv(self, device: str, identity: UUID | None = None) -> tuple[str, ...]:
        """The program that makes it. With `identity` it gets that UUID instead of a random one, if it can."""
        chosen = () if identity is None else self.identity
        digits = "" if identity is None else identity.hex
        words = (part.format(uuid=identity, hex=digits) for part in chosen)
        made = (*self.make, *words, *(part.format(device=device) for part in self.target))
        parts = (self.before_make.format(device=device), '"$@"', shlex.join(self.after_make))
        return ("sh", "-c", " && ".join(filter(None, parts)), "sh", *made) if parts[0] or parts[2] else made

    def image_argvs(
        self, tree: str, image: str, *, files_kib: int, identity: UUID | None = None
    ) -> tuple[tuple[str, ...], ...]:
        """The programs that make a read-only filesystem from the folder `tree`, as the file `image`.

        `files_kib` is what its files take in whole blocks of 4 KiB.
        """
        chosen = () if identity is None else self.identity
        digits = "" if identity is None else identity.hex
        options = (*self.make[1:], *(part.format(uuid=identity, hex=digits) for part in chosen))
        at = self.read_only.index("{options}")
        given = {"tree": tree, "image": image, "room_kib": files_kib * 9 // 8 + _ROOM_KIB}
        before, after = (
            [word.format(**given) for word in part] for part in (self.read_only[:at], self.read_only[at + 1 :])
        )
        made = (self.make[0], *before, *options, *after)
        return (made, tuple(word.format(**given) for word in self.after_make)) if self.after_make else (made,)

    @property
    def is_image_of_disk(self) -> bool:
        """Whether it is read-only, and for a disk or card."""
        return bool(self.read_only) and self.medium is Medium.BLOCK

    @property
    def as_root(self) -> Root:
        """How a card's root partition gets it. Raises ConfigError if it cannot."""
        if self.is_image_of_disk:
            return Root(options=self.make[1:], make=self.make[:1], mount_options=self.mount_options)
        if self.root is None:
            raise ConfigError(f"no root partition can be made with {self.name}", hint="use it on scratch")
        return self.root

    def mount_argv(self, device: str, directory: str) -> tuple[str, ...]:
        words = (*(("ro",) if self.read_only else ()), *self.mount_options)
        options = ("-o", ",".join(words)) if words else ()
        command = self.mount or ("mount", "-t", self.kernel_type, "{options}", "{device}", "{directory}")
        before, after = (command[: (at := command.index("{options}"))], command[at + 1 :])
        given = {"device": device, "directory": directory}
        return (*(word.format(**given) for word in before), *options, *(word.format(**given) for word in after))

    def unmount_argv(self, directory: str) -> tuple[str, ...]:
        return tuple(word.format(directory=directory) for word in self.unmount)

    def check_argv(self, device: str) -> tuple[str, ...]:
        """The checker's arguments. Raises ConfigError without a checker."""
        if not self.check:
            raise ConfigError(f"{self.name} has no checker", hint="leave it out of suites with fsck")
        return (*self.check, device)


def titled(name: str) -> tuple[str, str]:
    """The title of a filesystem's name, empty without one, and what it is: `mine=ext4:commit=60`."""
    title, equals, content = name.partition("=")
    return (title, content) if equals and ":" not in title else ("", name)


def content_of(name: str) -> str:
    """What a filesystem of this name is, in a series' words: `ext4:commit=60`."""
    return titled(name)[1]


def title_of(name: str) -> str:
    """The filesystem's name in tables: `mine`, or without a title what it is."""
    return titled(name)[0] or name


def file_name(name: str) -> str:
    """A safe name for files and tests: `btrfs.zstd+noatime`, `ext4.1y-logger` for `ext4@1y-logger`.

    What has other signs, or is long, ends with a hash.
    """
    shown = title_of(name).replace(":", ".", 1).replace("@", ".", 1)
    safe = re.sub(r"[^A-Za-z0-9._+]+", "-", shown)
    if safe == shown and len(shown) <= _LONGEST_FILE_NAME:
        return safe
    return f"{safe[:40]}-{hashlib.sha256(shown.encode()).hexdigest()[:6]}"


def is_unflushed(make_options: Iterable[str], mount_options: Iterable[str]) -> bool:
    """Whether a filesystem with these options sends no flushes, so that a power cut loses files that are synced."""
    mounted = tuple(mount_options)
    barriers = [each for each in mounted if each.partition("=")[0].removeprefix("no") == "barrier"]
    last = barriers[-1] if barriers else ""
    return last in {"nobarrier", "barrier=0"} or "fsync_mode=nobarrier" in mounted or "sync=disabled" in make_options
