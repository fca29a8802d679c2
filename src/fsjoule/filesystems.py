"""Each filesystem as data: how it is made, mounted, checked, and what it cannot do. Adding one is one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from fsjoule.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One filesystem. Programs are argument lists without the device, which comes last.

    `make` overwrites whatever the device held and asks nothing. `check` is empty where there is no checker. `modules`
    are the kernel's names; `lacks` says what a suite must do without. `identity` gives it a UUID of one's own choice
    (`{uuid}`, or as many of its digits as `{hex:.8}` says); it is no option that makes another series.
    """

    name: str
    kernel_type: str
    make: tuple[str, ...]
    mount_options: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()

    def make_argv(self, device: str, identity: UUID | None = None) -> tuple[str, ...]:
        """With `identity` the filesystem gets that UUID, if its program takes one, instead of a random one."""
        chosen = () if identity is None else self.identity
        digits = "" if identity is None else identity.hex
        return (*self.make, *(part.format(uuid=identity, hex=digits) for part in chosen), device)

    def mount_argv(self, device: str, directory: str) -> tuple[str, ...]:
        options = ("-o", ",".join(self.mount_options)) if self.mount_options else ()
        return ("mount", "-t", self.kernel_type, *options, device, directory)

    def check_argv(self, device: str) -> tuple[str, ...]:
        """The checker's arguments. Raises ConfigError for a filesystem that has none."""
        if not self.check:
            raise ConfigError(f"{self.name} has no checker", hint="leave it out of suites with fsck")
        return (*self.check, device)


_TABLE: Final = (
    # -F, -f, -q: never ask, overwrite what is there. nodiscard, -K, -t 0: a board that wants its card purged has it
    # purged before, outside of what is timed. ext4 leaves its inode tables for later, as is its default; noinit_itable
    # keeps the kernel from writing them after the mount, inside somebody's measurement.
    Filesystem(
        "ext4",
        "ext4",
        ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"),
        mount_options=("noinit_itable",),
        check=("fsck.ext4", "-f", "-n"),
        modules=("ext4",),
        identity=("-U", "{uuid}"),
    ),
    Filesystem(
        "btrfs",
        "btrfs",
        ("mkfs.btrfs", "-q", "-f", "-K"),
        check=("btrfs", "check"),
        modules=("btrfs",),
        identity=("-U", "{uuid}"),
    ),
    Filesystem(
        "f2fs",
        "f2fs",
        ("mkfs.f2fs", "-q", "-f", "-t", "0"),
        check=("fsck.f2fs", "--dry-run"),
        modules=("f2fs",),
        identity=("-U", "{uuid}"),
    ),
    Filesystem(
        "xfs",
        "xfs",
        ("mkfs.xfs", "-q", "-f", "-K"),
        check=("xfs_repair", "-n"),
        modules=("xfs",),
        identity=("-m", "uuid={uuid}"),
    ),
    Filesystem("nilfs2", "nilfs2", ("mkfs.nilfs2", "-q", "-f", "-K"), modules=("nilfs2",), lacks=frozenset({"fsck"})),
    Filesystem(
        "udf",
        "udf",
        ("mkudffs", "--utf8", "--media-type=hd"),
        modules=("udf",),
        lacks=frozenset({"fsck", "fallocate"}),
        identity=("--uuid={hex:.16}",),
    ),
    Filesystem(
        "vfat",
        "vfat",
        ("mkfs.vfat", "-F", "32"),
        check=("fsck.vfat", "-n"),
        modules=("vfat", "nls_cp437", "nls_ascii"),
        identity=("-i", "{hex:.8}"),
        lacks=frozenset({"symlinks", "fallocate"}),
    ),
)

FILESYSTEMS: Final[dict[str, Filesystem]] = {row.name: row for row in _TABLE}


def filesystem(name: str) -> Filesystem:
    """The filesystem of that name. Raises ConfigError with the choices."""
    try:
        return FILESYSTEMS[name]
    except KeyError:
        raise ConfigError.unknown("filesystem", name, FILESYSTEMS) from None
