"""The table of filesystems, one row each: how it is made, mounted and checked, its kernel's words, its colours.

`model/filesystem.py` explains the fields. Adding a filesystem is adding one row.

A variant is the same filesystem with other options: `btrfs:zstd`, or several together, `btrfs:zstd+noatime`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.hooks import Rows
from fsjoule.model.filesystem import Filesystem, Root, Variant

# Variants that every filesystem can have.
_NOATIME: Final = {"noatime": Variant("reading changes no time stamps", mount=("noatime",))}
_COMMON: Final = {**_NOATIME, "discard": Variant("tells the card of deleted blocks at once", mount=("discard",))}

_UNFLUSHED: Final = "nobarrier"
_NO_BARRIER: Final = {_UNFLUSHED: Variant("no flushes: not safe if power is lost", mount=("nobarrier",))}

_POOL: Final = "fsjoule"
_EXT_ERRORS: Final = "EXT4-fs error"  # one module drives all three

_TABLE: Final = (
    # -F, -f, -q: never ask, overwrite any contents. nodiscard, -K, -t 0: a card is purged before, outside the timed
    # part. ext4 leaves its inode tables for later, which is its default; noinit_itable keeps the kernel from writing
    # them after the mount, inside a measurement.
    Filesystem(
        "ext4",
        "ext4",
        ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"),
        mount_options=("noinit_itable",),
        check=("fsck.ext4", "-f", "-n"),
        repair=("fsck.ext4", "-f", "-y"),
        packages=("e2fsprogs",),
        modules=("ext4",),
        kconfig=("EXT4_FS", "EXT4_FS_POSIX_ACL", "EXT4_FS_SECURITY"),
        identity=("-U", "{uuid}"),
        # Journal and inode tables are written at once; written in the background they would be measured. Without the
        # variable mke2fs turns their zeros into holes. Below 512 MiB it would choose blocks of 1 KiB.
        root=Root(
            options=(
                *("-b", "4096", "-i", "16384", "-I", "256", "-O", "^metadata_csum_seed,^orphan_file"),
                *("-E", "lazy_itable_init=0,lazy_journal_init=0"),
            ),
            make=("mke2fs", "-q", "-F", "-t", "ext4"),
            environment={"UNIX_IO_NOZEROOUT": "1"},
            extended="hash_seed={uuid}",
            target=("-d", "{tree}", "{image}"),
            fill_holes=False,
        ),
        errors=_EXT_ERRORS,
        colours=("#2563c9", "#5d93f5"),
        variants={
            **_COMMON,
            "nojournal": Variant("without a journal", make=("-O", "^has_journal")),
            "stripe": Variant("allocates in steps of 4 MiB, an erase block of many cards", mount=("stripe=1024",)),
            "datajournal": Variant("data goes through the journal too", mount=("data=journal",)),
            **_NO_BARRIER,
        },
    ),
    Filesystem(
        "ext3",
        "ext3",
        ("mkfs.ext3", "-q", "-F", "-E", "nodiscard"),
        check=("fsck.ext3", "-f", "-n"),
        repair=("fsck.ext3", "-f", "-y"),
        packages=("e2fsprogs",),
        modules=("ext4",),
        kconfig=("EXT4_FS",),
        identity=("-U", "{uuid}"),
        errors=_EXT_ERRORS,
        colours=("#5b8def", "#8db3ff"),
        lacks=frozenset({"fallocate"}),
        variants=_COMMON,
    ),
    Filesystem(
        "ext2",
        "ext2",
        ("mkfs.ext2", "-q", "-F", "-E", "nodiscard"),
        check=("fsck.ext2", "-f", "-n"),
        repair=("fsck.ext2", "-f", "-y"),
        packages=("e2fsprogs",),
        modules=("ext4",),
        kconfig=("EXT4_FS",),
        identity=("-U", "{uuid}"),
        errors=_EXT_ERRORS,
        colours=("#8fb2f5", "#bfd4ff"),
        lacks=frozenset({"fallocate"}),
        variants=_COMMON,
    ),
    Filesystem(
        "btrfs",
        "btrfs",
        ("mkfs.btrfs", "-q", "-f", "-K"),
        check=("btrfs", "check"),
        repair=("btrfs", "check", "--repair", "--force"),
        packages=("btrfs-progs",),
        modules=("btrfs",),
        kconfig=("BTRFS_FS", "BTRFS_FS_POSIX_ACL"),
        identity=("-U", "{uuid}"),
        # Nothing to fill: a tree block is read only through a pointer written after it, with its generation.
        root=Root(make=("mkfs.btrfs", "-q"), target=("--rootdir", "{tree}", "{image}"), fill_holes=False),
        errors=r"BTRFS:? (error|critical)|BTRFS.*aborted",
        colours=("#e07b1f", "#f29a4a"),
        variants={
            **_COMMON,
            "zstd": Variant("compresses compressible data", mount=("compress=zstd",)),
            "lzo": Variant("compresses compressible data, faster and less", mount=("compress=lzo",)),
            "nodatacow": Variant("overwrites data in place, without checksums", mount=("nodatacow",)),
            "nodatasum": Variant("no checksums of data", mount=("nodatasum",)),
            "single": Variant("one copy of the metadata", make=("-m", "single")),
            "dup": Variant("two copies of the metadata", make=("-m", "dup")),
            "ssd": Variant("allocates as for flash memory", mount=("ssd",)),
            "leaf4k": Variant("metadata in blocks of 4 KiB", make=("-n", "4096")),
            **_NO_BARRIER,
        },
    ),
    Filesystem(
        "f2fs",
        "f2fs",
        ("mkfs.f2fs", "-q", "-f", "-t", "0"),
        check=("fsck.f2fs", "--dry-run"),
        repair=("fsck.f2fs", "-f"),
        packages=("f2fs-tools",),
        modules=("f2fs",),
        kconfig=("F2FS_FS", "F2FS_FS_XATTR", "F2FS_FS_POSIX_ACL"),
        identity=("-U", "{uuid}"),
        # Checkpoints and the nodes that roll-forward recovery finds can be anywhere.
        root=Root(
            options=("-t", "0"),
            make=("mkfs.f2fs", "-q", "-f"),
            target=("{image}",),
            copy=("sload.f2fs", "-f", "{tree}", "-t", "/", "{image}"),
        ),
        errors=r"F2FS-fs.*([Ee]rror[^s]|[Ii]nconsistent|invalid blkaddr|run fsck to fix|Stopped filesystem)",
        colours=("#13968a", "#35c2b4"),
        variants={
            **_COMMON,
            "section2": Variant("cleans two segments (4 MiB) at a time", make=("-s", "2")),
            "zone2": Variant("two sections in a zone", make=("-z", "2")),
            "zstd": Variant(
                "compresses all files",
                make=("-O", "extra_attr,compression"),
                mount=("compress_algorithm=zstd", "compress_extension=*"),
            ),
            **_NO_BARRIER,
        },
    ),
    Filesystem(
        "xfs",
        "xfs",
        # Kernels before 5.19 do not know large extent counters: one format for all of them.
        ("mkfs.xfs", "-q", "-f", "-K", "-i", "nrext64=0"),
        check=("xfs_repair", "-n"),
        repair=("xfs_repair",),
        packages=("xfsprogs",),
        modules=("xfs",),
        kconfig=("XFS_FS", "XFS_POSIX_ACL"),
        identity=("-m", "uuid={uuid}"),
        root=Root(options=("-i", "nrext64=0"), make=("mkfs.xfs", "-q", "-f"), target=("-p", "{prototype}", "{image}")),
        errors=r"XFS.*([Cc]orruption|[Ee]rror)",
        colours=("#8b46c9", "#b685ea"),
        variants={
            **_COMMON,
            "block1k": Variant("blocks of 1 KiB", make=("-b", "size=1024")),
            "block2k": Variant("blocks of 2 KiB", make=("-b", "size=2048")),
        },
    ),
    Filesystem(
        "nilfs2",
        "nilfs2",
        ("mkfs.nilfs2", "-q", "-f", "-K"),
        packages=("nilfs-tools",),
        modules=("nilfs2",),
        kconfig=("NILFS2_FS",),
        # Its log can end anywhere, and recovery looks behind the end.
        root=Root(options=("-q", "-f", "-K")),
        errors=r"NILFS.*error",
        colours=("#b58a00", "#dcb537"),
        lacks=frozenset({"fsck", "fallocate"}),
        variants={
            **_COMMON,
            "block1k": Variant("blocks of 1 KiB", make=("-b", "1024")),
            "block2k": Variant("blocks of 2 KiB", make=("-b", "2048")),
            "segment512": Variant("segments of 512 blocks (2 MiB)", make=("-B", "512")),
        },
    ),
    Filesystem(
        "udf",
        "udf",
        ("mkudffs", "--utf8", "--media-type=hd"),
        packages=("udftools",),
        modules=("udf",),
        kconfig=("UDF_FS",),
        lacks=frozenset({"fsck", "fallocate"}),
        identity=("--uuid={hex:.16}",),
        errors=r"UDF-fs.*error",
        colours=("#c93a7c", "#ec74aa"),
        variants=_NOATIME,
    ),
    Filesystem(
        "vfat",
        "vfat",
        ("mkfs.vfat", "-F", "32"),
        check=("fsck.vfat", "-n"),
        repair=("fsck.vfat", "-a"),
        packages=("dosfstools",),
        modules=("vfat", "nls_cp437", "nls_ascii"),
        kconfig=("VFAT_FS", "NLS_CODEPAGE_437", "NLS_ASCII"),
        identity=("-i", "{hex:.8}"),
        errors=r"FAT-fs.*error",
        colours=("#5f6b7a", "#9aa6b5"),
        lacks=frozenset({"symlinks", "fallocate"}),
        variants=_COMMON,
    ),
    # A filesystem is a pool of one device. The pool's name owns it while the pool is imported, the device once it is
    # exported: `make` and `unmount` export it. A cut of power exports nothing, so import needs -f. The variable keeps
    # import from waiting 3 s for udev, which the board lacks, to note the device's serial number.
    # ashift: sectors of 4 KiB, whatever the device reports. direct: O_DIRECT is accepted and ignored, as every zfs
    # before 2.3 does; direct I/O of 2.3 refuses blocks that are not whole pages. The check reads all metadata.
    Filesystem(
        "zfs",
        "zfs",
        ("zpool", "create", "-f", "-o", "ashift=12", "-O", "direct=disabled", "-m", "/", "-R", "/run/zpool"),
        target=(_POOL, "{device}"),
        after_make=("zpool", "export", _POOL),
        mount=(
            *("env", "ZFS_VDEV_DEVID_OPT_OUT=YES"),
            *("zpool", "import", "-f", "-d", "{device}", "-R", "{directory}", "{options}", _POOL),
        ),
        unmount=("zpool", "export", _POOL),
        keeps_cache=True,
        check=("zdb", "-e", "-c", _POOL, "-p"),
        packages=("zfsutils-linux",),
        modules=("zfs",),
        dkms="zfs-dkms",
        # A failed request, a suspended pool, a failed assertion. Only `zpool status` tells of wrong checksums.
        errors=r"zio pool=.*error=|Pool '.*' has encountered|VERIFY[A-Z0-9]*\(.*failed|PANIC( at [^ ]+\.c)?:",
        colours=("#3d9440", "#6cc46f"),
        variants={
            **_NOATIME,
            "direct": Variant("direct I/O, in blocks of whole pages", make=("-O", "direct=standard")),
            "nocompression": Variant("stores data as it is; otherwise lz4", make=("-O", "compression=off")),
            "zstd": Variant("compresses more than lz4, and slower", make=("-O", "compression=zstd")),
            "record16k": Variant("records of 16 KiB", make=("-O", "recordsize=16K")),
        },
    ),
    Filesystem(
        # No filesystem: the device's own speed, for comparison.
        "raw",
        "",
        (),
        raw=True,
        lacks=frozenset(
            {
                *("mkfs", "mount", "umount", "fsck", "copy", "power-loss", "dm-flakey"),
                *("write_files", "hash_files", "fragment", "removing"),
            }
        ),
    ),
)

FILESYSTEMS: Final = Rows("filesystem", "fsjoule_filesystems", Filesystem, lambda: _TABLE)


@lru_cache
def filesystem(name: str) -> Filesystem:
    """The filesystem of this name, with the options of its variants: `ext4`, `btrfs:zstd+noatime`.

    Raises ConfigError with the choices.
    """
    plain, colon, chosen = name.partition(":")
    try:
        row = FILESYSTEMS[plain]
    except KeyError:
        raise ConfigError.unknown("filesystem", plain, FILESYSTEMS) from None
    # Sorted, because a series has one name.
    names = sorted(set(chosen.split("+"))) if colon else []
    for variant in names:
        if variant not in row.variants:
            raise ConfigError.unknown(f"variant of {plain}", variant, row.variants)
    variants = [row.variants[variant] for variant in names]
    chosen_options = tuple(word for variant in variants for word in variant.make)
    return replace(
        row,
        name=plain + colon + "+".join(names),
        make=(*_less_properties(row.make, chosen_options), *chosen_options),
        mount_options=(*row.mount_options, *(option for variant in variants for option in variant.mount)),
    )


def is_unflushed(name: str) -> bool:
    """Whether a filesystem of this name sends no flushes, so that a power cut loses files that are synced."""
    return _UNFLUSHED in name.partition(":")[2].split("+")


def _less_properties(make: tuple[str, ...], chosen: tuple[str, ...]) -> tuple[str, ...]:
    """`make` without the properties (`-O name=value`) that a variant chooses: zpool refuses duplicates."""

    def properties(words: tuple[str, ...]) -> dict[int, str]:
        return {i: words[i + 1].partition("=")[0] for i, word in enumerate(words[:-1]) if word == "-O"}

    again = set(properties(chosen).values())
    dropped = {at for i, name in properties(make).items() if name in again for at in (i, i + 1)}
    return tuple(word for i, word in enumerate(make) if i not in dropped)


def unmount_argv(kernel_type: str, directory: str) -> tuple[str, ...]:
    """The command that unmounts a filesystem by the kernel's name for its type."""
    row = next((row for row in FILESYSTEMS.values() if row.kernel_type == kernel_type), _TABLE[0])
    return row.unmount_argv(directory)


def modules_of(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module for name in names for module in filesystem(name).modules))


def dkms_package(module: str) -> str:
    """Debian's package with the source of a module that its kernels lack."""
    return next(row.dkms for row in FILESYSTEMS.values() if row.dkms and module in row.modules)
