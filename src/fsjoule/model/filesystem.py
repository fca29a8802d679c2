"""What a filesystem is, as data: the fields of a row of `fsjoule.filesystems`, and the programs that follow from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from fsjoule.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Variant:
    """Options on top of a filesystem's own: `make` goes before the device, `mount` to -o. `note` is for people."""

    note: str
    make: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Root:
    """How a card's root partition gets the filesystem, without mounting anything on the host.

    `make` is the host's program. It is empty where no program of the host can copy files into the filesystem: then the
    emulated board makes it, with the program of `Filesystem.make`, and copies them. A series of this root is told by
    `options`; a recipe can have others. `extended` joins the value of the last -E among them: mke2fs takes one only.
    `target` ends the program's arguments; `copy` is a program that copies the files. `{image}` stands for the
    partition, `{tree}` for the folder of its files, `{prototype}` for their list as mkfs.xfs reads it.

    A block map leaves holes out, and the card keeps there what it had. A journal, a log or a checkpoint that is a hole
    would be that of an earlier life of the same image, with the same UUID, ready to be replayed. So zeros are written
    wherever the filesystem reads before it writes: by `make`, or with `fill_holes` into all holes.
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
class Filesystem:
    """One filesystem. Programs are argument lists; `check` and `repair` are without the device, which comes last.

    `make` overwrites whatever the device held and asks nothing; behind its options comes `target`, then `after_make`, a
    program that belongs to it. `mount` and `unmount` are as with mount(8), if not said otherwise; what is unmounted is
    whole on the device, and nothing is kept of it in memory. `{device}` and `{directory}` stand for these, `{options}`
    for -o with the options, if there are any. A filesystem that `keeps_cache` has one of its own, which dropping the
    kernel's caches leaves as it is. `check` changes nothing and is empty where there is no checker; `repair` mends what
    it can and asks nothing. `modules` are the kernel's names; `lacks` says what a suite must do without. `identity`
    gives it a UUID of one's own choice (`{uuid}`, or as many of its digits as `{hex:.8}` says); it is no option that
    makes another series. `root` is how a card's root partition gets it, if one can. `errors` is a regular expression
    for the kernel's words. `colours` are those of charts, on light and on dark; without any it gets a spare one.
    `variants` are its options worth measuring, by name.
    """

    name: str
    kernel_type: str
    make: tuple[str, ...]
    target: tuple[str, ...] = ("{device}",)
    after_make: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    unmount: tuple[str, ...] = ("umount", "{directory}")
    keeps_cache: bool = False
    mount_options: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    root: Root | None = None
    errors: str = ""
    colours: tuple[str, str] | None = None
    variants: Mapping[str, Variant] = field(default_factory=dict[str, Variant])

    @property
    def raw(self) -> bool:
        """Whether there is no filesystem: fio works on the device itself."""
        return not self.make

    def make_argv(self, device: str, identity: UUID | None = None) -> tuple[str, ...]:
        """With `identity` the filesystem gets that UUID, if its program takes one, instead of a random one."""
        chosen = () if identity is None else self.identity
        digits = "" if identity is None else identity.hex
        words = (part.format(uuid=identity, hex=digits) for part in chosen)
        made = (*self.make, *words, *(part.format(device=device) for part in self.target))
        return ("sh", "-c", f'"$@" && {shlex.join(self.after_make)}', "sh", *made) if self.after_make else made

    @property
    def as_root(self) -> Root:
        """How a card's root partition gets it. Raises ConfigError if none can."""
        if self.root is None:
            raise ConfigError(f"no root partition can be made with {self.name}", hint="use it on scratch")
        return self.root

    def mount_argv(self, device: str, directory: str) -> tuple[str, ...]:
        options = ("-o", ",".join(self.mount_options)) if self.mount_options else ()
        command = self.mount or ("mount", "-t", self.kernel_type, "{options}", "{device}", "{directory}")
        before, after = (command[: (at := command.index("{options}"))], command[at + 1 :])
        given = {"device": device, "directory": directory}
        return (*(word.format(**given) for word in before), *options, *(word.format(**given) for word in after))

    def unmount_argv(self, directory: str) -> tuple[str, ...]:
        return tuple(word.format(directory=directory) for word in self.unmount)

    def check_argv(self, device: str) -> tuple[str, ...]:
        """The checker's arguments. Raises ConfigError for a filesystem that has none."""
        if not self.check:
            raise ConfigError(f"{self.name} has no checker", hint="leave it out of suites with fsck")
        return (*self.check, device)
