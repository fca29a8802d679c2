"""The table of filesystems, one row each: how it is made, mounted and checked, its kernel's words, its colours.

`model/filesystem.py` explains the fields. Adding a filesystem is adding one row.

A variant is the same filesystem with other options: `btrfs:zstd`, or several together, `btrfs:zstd+noatime`. Users add
options of their own: `ext4:mkfs=-I 128+commit=60`, or by name in the project's file.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Final, NamedTuple, cast

from fsjoule.errors import ConfigError
from fsjoule.hooks import Rows
from fsjoule.host.project_file import ProjectTable, project_table
from fsjoule.model import MIB
from fsjoule.model.age import parted
from fsjoule.model.filesystem import Filesystem, FreeSpace, Root, Variant, content_of, title_of, titled
from fsjoule.model.labels import pieces
from fsjoule.model.medium import Medium

# Variants that every filesystem can have.
_NOATIME: Final = {"noatime": Variant("reading changes no time stamps", mount=("noatime",))}
_COMMON: Final = {**_NOATIME, "discard": Variant("tells the card of deleted blocks at once", mount=("discard",))}

_NO_BARRIER: Final = {"nobarrier": Variant("no flushes: not safe if power is lost", mount=("nobarrier",))}

# Variants of all read-only filesystems.
_READ_ONLY: Final = {
    "verity": Variant("dm-verity checks each block against a hash", modules=("dm-verity",), verity=True),
}

_SQUASHFS: Final = (
    "MISC_FILESYSTEMS",
    "SQUASHFS",
    *(f"SQUASHFS_{each}" for each in ("ZLIB", "LZ4", "LZO", "XZ", "ZSTD")),
)
_SQUASHED: Final = {
    "lz4": Variant("compressed with LZ4", make=("-comp", "lz4"), kconfig=("SQUASHFS_LZ4",)),
    "lz4hc": Variant("smaller LZ4, slow to make", make=("-comp", "lz4", "-Xhc"), kconfig=("SQUASHFS_LZ4",)),
    "lzo": Variant("compressed with LZO", make=("-comp", "lzo"), kconfig=("SQUASHFS_LZO",)),
    "xz": Variant("compressed with XZ", make=("-comp", "xz"), kconfig=("SQUASHFS_XZ",)),
    "zstd": Variant("compressed with zstd", make=("-comp", "zstd"), kconfig=("SQUASHFS_ZSTD",)),
    **{f"block{size}k": Variant(f"blocks of {size} KiB", make=("-b", f"{size}K")) for size in (4, 16, 32, 64, 256)},
    "block1m": Variant("blocks of 1 MiB", make=("-b", "1M")),
}

_POOL: Final = "fsjoule"
# The board may have UBI devices of its own, from 0 on.
_UBI_VOLUME: Final = (
    "ubiblock --remove /dev/ubi9_0 2> /dev/null; ubidetach -d 9 2> /dev/null; "
    "ubiformat -q -y {device} && ubiattach -d 9 -p {device} > /dev/null && "
    f"ubimkvol /dev/ubi9 -N {_POOL} -m > /dev/null"
)
_UBI_ATTACHED: Final = '{{ [ -e /dev/ubi9 ] || ubiattach -d 9 -p "$0" > /dev/null; }}'
_UBI_BLOCK: Final = "{{ [ -e /dev/ubiblock9_0 ] || ubiblock --create /dev/ubi9_0 > /dev/null; }}"
_EXT_ERRORS: Final = "EXT4-fs error"  # one module drives all three
_EXT_JOINED: Final = ("-E", "-O")
_EXT_IDLE: Final = ("-n", "-S", "-V")  # -S writes superblocks only
_EXT_FILES: Final = ("-d", "-l", "-z")
# ext4(5), section "kernel support", and the release notes of e2fsprogs 1.46 and 1.47. Old kernels ignore orphan_file: a
# figure would be another one than its name says.
_EXT_SINCE: Final = {
    "encrypt": "4.1",
    "metadata_csum_seed": "4.4",
    "project": "4.5",
    "ea_inode": "4.13",
    "large_dir": "4.13",
    "casefold": "5.2",
    "verity": "5.4",
    "stable_inodes": "5.5",
    "fast_commit": "5.10",
    "orphan_file": "5.15",
}

# e2freefrag's lines: `   64K...  128K-  :   12   300   1.25%`.
_EXT_FREE: Final = FreeSpace(
    ("e2freefrag", "{device}"),
    r"^ *(?P<length>\d+)(?P<suffix>[KMG])\.\.\..*: *(?P<count>\d+) +\d+ +(?P<percent>[\d.]+)%",
)
_EXT3: Final = Filesystem(
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
    joined=_EXT_JOINED,
    idle=_EXT_IDLE,
    files=_EXT_FILES,
    free_space=_EXT_FREE,
    colours=("#5b8def", "#8db3ff"),
    lacks=frozenset({"fallocate"}),
    variants=_COMMON,
    since=_EXT_SINCE,
)
# From the map of valid blocks of each segment, 64 bytes in hexadecimal digits: lengths of runs, and how many there are.
_F2FS_RUNS: Final = (
    'BEGIN { split("0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 1010 1011 1100 1101 1110 1111", v); '
    'for (i = 1; i <= 16; i++) bits[substr("0123456789abcdef", i, 1)] = v[i] } '
    '$1 ~ /^[0-9]+$/ && NF > 64 { map = ""; '
    "for (i = NF - 63; i <= NF; i++) map = map bits[substr($i, 1, 1)] bits[substr($i, 2, 1)]; "
    "n = split(map, runs, /1+/); "
    'for (i = 1; i <= n; i++) if (runs[i] != "") count[length(runs[i])]++ } '
    "END { for (each in count) print each, count[each] }"
)

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
        joined=_EXT_JOINED,
        idle=_EXT_IDLE,
        files=_EXT_FILES,
        free_space=_EXT_FREE,
        colours=("#2563c9", "#5d93f5"),
        variants={
            **_COMMON,
            "nojournal": Variant("without a journal", make=("-O", "^has_journal")),
            "stripe": Variant("allocates in steps of 4 MiB, an erase block of many cards", mount=("stripe=1024",)),
            "datajournal": Variant("data goes through the journal too", mount=("data=journal",)),
            # Without one of them ext4 has what the board's mke2fs.conf says, which Debian changed with 12 and with 13.
            "defaults2022": Variant("as mke2fs before 1.47 makes it", make=("-O", "^metadata_csum_seed,^orphan_file")),
            "defaults2023": Variant("as mke2fs from 1.47 on makes it", make=("-O", "metadata_csum_seed,orphan_file")),
            **_NO_BARRIER,
        },
        since=_EXT_SINCE,
    ),
    _EXT3,
    replace(
        _EXT3,
        name="ext2",
        kernel_type="ext2",
        make=("mkfs.ext2", "-q", "-F", "-E", "nodiscard"),
        check=("fsck.ext2", "-f", "-n"),
        repair=("fsck.ext2", "-f", "-y"),
        colours=("#8fb2f5", "#bfd4ff"),
    ),
    Filesystem(
        "btrfs",
        "btrfs",
        ("mkfs.btrfs", "-q", "-f", "-K"),
        check=("btrfs", "check"),
        repair=("btrfs", "check", "--repair", "--force"),
        least_bytes=128 * MIB,
        packages=("btrfs-progs",),
        modules=("btrfs",),
        kconfig=("BTRFS_FS", "BTRFS_FS_POSIX_ACL"),
        identity=("-U", "{uuid}"),
        # Nothing to fill: a tree block is read only through a pointer written after it, with its generation.
        root=Root(make=("mkfs.btrfs", "-q"), target=("--rootdir", "{tree}", "{image}"), fill_holes=False),
        errors=r"BTRFS:? (error|critical)|BTRFS.*aborted",
        idle=("-V", "--version", "--help"),
        files=("-r", "--rootdir"),
        free_space=FreeSpace(
            ("btrfs", "inspect-internal", "dump-tree", "-t", "10", "{device}"),
            r"FREE_SPACE_EXTENT (?P<length>\d+)\)",
            incomplete="FREE_SPACE_BITMAP",
        ),
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
        # mkfs.btrfs(8) and btrfs(5); bgt is an alias.
        since={
            **dict.fromkeys(("xxhash", "sha256", "blake2", "raid1c3", "raid1c4"), "5.5"),
            "zoned": "5.12",
            "block-group-tree": "6.1",
            "bgt": "6.1",
            "squota": "6.7",
            "raid-stripe-tree": "6.7",
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
        joined=("-O",),
        errors=r"F2FS-fs.*([Ee]rror[^s]|[Ii]nconsistent|invalid blkaddr|run fsck to fix|Stopped filesystem)",
        idle=("-V", "-h", "--help"),
        files=("-c",),
        free_space=FreeSpace(
            ("awk", _F2FS_RUNS, "/proc/fs/f2fs/{name}/segment_bits"),
            r"^(?P<length>\d+) (?P<count>\d+)$",
            unit_bytes=4096,
            mounted=True,
        ),
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
        # A kernel mounts it whatever features it has.
        since={
            "encrypt": "4.2",
            "lost_found": "4.17",
            "sb_checksum": "4.20",
            "casefold": "5.4",
            "verity": "5.4",
            "compression": "5.6",
            "compress_algorithm=zstd": "5.7",
        },
    ),
    Filesystem(
        "xfs",
        "xfs",
        # Kernels before 5.19 do not know large extent counters: one format for all of them.
        ("mkfs.xfs", "-q", "-f", "-K", "-i", "nrext64=0"),
        check=("xfs_repair", "-n"),
        repair=("xfs_repair",),
        least_bytes=300 * MIB,
        packages=("xfsprogs",),
        modules=("xfs",),
        kconfig=("XFS_FS", "XFS_POSIX_ACL"),
        identity=("-m", "uuid={uuid}"),
        root=Root(options=("-i", "nrext64=0"), make=("mkfs.xfs", "-q", "-f"), target=("-p", "{prototype}", "{image}")),
        errors=r"XFS.*([Cc]orruption|[Ee]rror)",
        idle=("-N", "-V"),
        files=("-p",),
        free_space=FreeSpace(
            ("xfs_db", "-r", "-c", "freesp", "{device}"),
            r"^ *(?P<length>\d+) +\d+ +(?P<count>\d+) +\d+ +(?P<percent>[\d.]+)$",
            unit_bytes=4096,
        ),
        colours=("#8b46c9", "#b685ea"),
        variants={
            **_COMMON,
            "block1k": Variant("blocks of 1 KiB", make=("-b", "size=1024")),
            "block2k": Variant("blocks of 2 KiB", make=("-b", "size=2048")),
        },
        # mkfs.xfs(8), and the files of mkfs's defaults by kernel that xfsprogs brings.
        since={
            "rmapbt=1": "4.8",
            "reflink=1": "4.9",
            "bigtime=1": "5.10",
            "inobtcount=1": "5.10",
            "nrext64=1": "5.19",
            "nrext64": "5.19",
            "exchange=1": "6.10",
            "parent=1": "6.10",
            "metadir=1": "6.13",
        },
    ),
    Filesystem(
        "nilfs2",
        "nilfs2",
        ("mkfs.nilfs2", "-q", "-f", "-K"),
        least_bytes=144 * MIB,
        packages=("nilfs-tools",),
        modules=("nilfs2",),
        kconfig=("NILFS2_FS",),
        # Its log can end anywhere, and recovery looks behind the end.
        root=Root(options=("-q", "-f", "-K")),
        errors=r"NILFS.*error",
        idle=("-n", "-V", "-h"),
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
        idle=("-n", "--no-write", "-h", "--help"),
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
        idle=("--help",),
        files=("-l",),
        colours=("#5f6b7a", "#9aa6b5"),
        lacks=frozenset({"symlinks", "fallocate"}),
        variants=_COMMON,
    ),
    Filesystem(
        "exfat",
        "exfat",
        ("mkfs.exfat", "-q"),
        check=("fsck.exfat", "-n"),
        repair=("fsck.exfat", "-y"),
        packages=("exfatprogs",),
        modules=("exfat",),
        kconfig=("EXFAT_FS",),
        kernels="Linux has it since 5.7",
        identity=("-U", "{uuid}"),
        errors=r"exFAT-fs.*error",
        idle=("-V", "--version", "-h", "--help"),
        colours=("#7a5230", "#c39268"),
        lacks=frozenset({"symlinks", "fallocate"}),
        variants={
            **_COMMON,
            "align4m": Variant("begins its data at a multiple of 4 MiB", make=("-b", "4M")),
            "cluster128k": Variant("clusters of 128 KiB", make=("-c", "128K")),
        },
    ),
    # After a cut of power the kernel refuses to mount it until ntfsfix has taken the mark off; nothing checks it whole.
    Filesystem(
        "ntfs3",
        "ntfs3",
        ("mkfs.ntfs", "-Q", "-F", "-q"),
        repair=("ntfsfix", "-d"),
        packages=("ntfs-3g",),
        modules=("ntfs3",),
        kconfig=("NTFS3_FS",),
        kernels="Linux has it since 5.15, and Debian's kernels since 6.12",
        errors=r"ntfs3.*(NTFS errors|is dirty|corrupt|[Ff]ailed)",
        idle=("-n", "--no-action", "-V", "--version", "-l", "--license", "-h", "--help"),
        colours=("#1f7a99", "#57b4d1"),
        lacks=frozenset({"fsck", "symlinks"}),
        variants={**_COMMON, "cluster64k": Variant("clusters of 64 KiB", make=("-c", "65536"))},
    ),
    # Its own program initializes it in threads that crash now and then (1.13, 32 and 64 bits), so the kernel does it at
    # the first mount, in whose figures it is. -i: mount's helper would ask for a passphrase.
    Filesystem(
        "bcachefs",
        "bcachefs",
        ("bcachefs", "format", "-q", "-f", "--no_initialize"),
        mount=("mount", "-i", "-t", "bcachefs", "{options}", "{device}", "{directory}"),
        check=("bcachefs", "fsck", "-n"),
        repair=("bcachefs", "fsck", "-y"),
        packages=("bcachefs-tools",),
        modules=("bcachefs",),
        kconfig=("BCACHEFS_FS", "BCACHEFS_POSIX_ACL"),
        kernels="Linux has it from 6.7 to 6.17; of Debian's kernels 6.12 has it",
        unreleased=True,
        identity=("--uuid={uuid}",),
        errors=r"bcachefs.*([Ee]rror|inconsisten|emergency read only)",
        idle=("-h", "--help"),
        files=("--source",),
        colours=("#a3338f", "#d977c8"),
        variants={
            **_NOATIME,
            "zstd": Variant("compresses compressible data", make=("--compression=zstd",)),
            "nochecksum": Variant("no checksums of data", make=("--data_checksum=none",)),
        },
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
        idle=("-n",),
        colours=("#3d9440", "#6cc46f"),
        variants={
            **_NOATIME,
            "direct": Variant("direct I/O, in blocks of whole pages", make=("-O", "direct=standard")),
            "nocompression": Variant("stores data as it is; otherwise lz4", make=("-O", "compression=off")),
            "zstd": Variant("compresses more than lz4, and slower", make=("-O", "compression=zstd")),
            "record16k": Variant("records of 16 KiB", make=("-O", "recordsize=16K")),
        },
    ),
    # Raw flash. The device is erased before, as blocks are discarded. UBI counts the erasures of each block, and
    # ubiformat keeps the counts. Attaching reads each block's headers: it belongs to the time of a mount.
    Filesystem(
        "ubifs",
        "ubifs",
        ("mkfs.ubifs", "-y"),
        medium=Medium.MTD,
        before_make=_UBI_VOLUME,
        target=("/dev/ubi9_0",),
        after_make=("ubidetach", "-d", "9"),
        mount=(
            *("sh", "-c", f'{_UBI_ATTACHED} && exec mount -t ubifs "$@"'),
            *("{device}", "{options}", "/dev/ubi9_0", "{directory}"),
        ),
        unmount=("sh", "-c", 'umount "$0" && ubidetach -d 9', "{directory}"),
        packages=("mtd-utils",),
        # Without the modules of its compressors it mounts nothing.
        modules=("ubi", "ubifs", "zstd", "lzo", "deflate"),
        kconfig=("MTD", "MTD_UBI", "UBIFS_FS", "UBIFS_FS_LZO", "UBIFS_FS_ZLIB", "UBIFS_FS_ZSTD"),
        errors=r"(UBI|UBIFS) error",
        idle=("-h", "-V", "--help", "--version"),
        files=("-r", "-d", "--root", "--devtable", "-o", "--output"),
        colours=("#3f6212", "#a3e635"),
        lacks=frozenset({"fsck", "fallocate", "dm-flakey"}),
        variants={
            **_NOATIME,
            "nocompression": Variant("stores data as it is; otherwise lzo", make=("-x", "none")),
            "zlib": Variant("compresses more than lzo, and slower", make=("-x", "zlib")),
            "zstd": Variant("compresses with zstd", make=("-x", "zstd")),
            "sync": Variant("writes at once, without write-back", mount=("sync",)),
            "bulkread": Variant("reads ahead in flash", mount=("bulk_read",)),
        },
    ),
    # It needs nothing but erased blocks with markers. A mount scans all of the flash.
    Filesystem(
        "jffs2",
        "jffs2",
        ("flash_erase", "-q", "-j"),
        medium=Medium.MTD,
        spare_area=True,
        target=("{device}", "0", "0"),
        # The kernel wants the name without its folder.
        mount=("sh", "-c", 'exec mount -t jffs2 "${{0##*/}}" "$@"', "{device}", "{directory}", "{options}"),
        packages=("mtd-utils",),
        modules=("jffs2",),
        kconfig=("MTD", "JFFS2_FS", "JFFS2_FS_WRITEBUFFER"),
        errors=r"jffs2.*([Ee]rror|CRC failed)",
        idle=("-h", "-V", "--help", "--version"),
        colours=("#7c5cff", "#a99bff"),
        lacks=frozenset({"fsck", "fallocate", "dm-flakey"}),
        variants={
            **_NOATIME,
            "nocompression": Variant("stores data as it is; otherwise zlib or rtime", mount=("compr=none",)),
            "lzo": Variant("compresses with lzo only", mount=("compr=force-lzo",)),
        },
    ),
    # Read-only: a newcomer is one row. -noappend: the file may be there.
    Filesystem(
        "squashfs",
        "squashfs",
        ("mksquashfs", "-noappend", "-no-progress", "-quiet"),
        read_only=("{tree}", "{image}", "{options}"),
        packages=("squashfs-tools",),
        modules=("squashfs",),
        kconfig=_SQUASHFS,
        errors="SQUASHFS error",
        idle=("-version", "-help"),
        colours=("#0e7490", "#4cc3dc"),
        variants={
            **_READ_ONLY,
            **_SQUASHED,
        },
    ),
    # A block device above a volume of UBI, which moves blocks that wear by reading.
    Filesystem(
        "squashfs-ubi",
        "squashfs",
        ("mksquashfs", "-noappend", "-no-progress", "-quiet"),
        medium=Medium.MTD,
        read_only=("{tree}", "{image}", "{options}"),
        write=f'{_UBI_VOLUME.format(device="$2")} && ubiupdatevol /dev/ubi9_0 "$1" && ubidetach -d 9',
        mount=(
            *("sh", "-c", f'{_UBI_ATTACHED} && {_UBI_BLOCK} && exec mount -t squashfs "$@"'),
            *("{device}", "{options}", "/dev/ubiblock9_0", "{directory}"),
        ),
        unmount=("sh", "-c", 'umount "$0" && ubiblock --remove /dev/ubi9_0 && ubidetach -d 9', "{directory}"),
        packages=("mtd-utils", "squashfs-tools"),
        modules=("ubi", "squashfs"),
        kconfig=("MTD", "MTD_UBI", "MTD_UBI_BLOCK", *_SQUASHFS),
        errors="SQUASHFS error|UBI error",
        idle=("-version", "-help"),
        colours=("#155e75", "#67e8f9"),
        variants=_SQUASHED,
    ),
    Filesystem(
        "erofs",
        "erofs",
        ("mkfs.erofs", "--quiet"),
        read_only=("{options}", "{image}", "{tree}"),
        packages=("erofs-utils",),
        modules=("erofs",),
        kconfig=("MISC_FILESYSTEMS", "EROFS_FS", "EROFS_FS_ZIP"),
        identity=("-U", "{uuid}"),
        errors=r"erofs:? .*(failed to decompress|corrupted|bogus)",
        idle=("--help", "--version"),
        colours=("#9f1239", "#f2819b"),
        variants={
            **_READ_ONLY,
            "lz4": Variant("compressed with LZ4", make=("-z", "lz4"), kconfig=("EROFS_FS_ZIP",)),
            "lz4hc": Variant("smaller LZ4, slow to make", make=("-z", "lz4hc"), kconfig=("EROFS_FS_ZIP",)),
            "lzma": Variant("compressed with LZMA", make=("-z", "lzma"), kconfig=("EROFS_FS_ZIP_LZMA",)),
            "deflate": Variant("compressed with DEFLATE", make=("-z", "deflate"), kconfig=("EROFS_FS_ZIP_DEFLATE",)),
            "zstd": Variant("compressed with zstd", make=("-z", "zstd"), kconfig=("EROFS_FS_ZIP_ZSTD",)),
            **{
                f"cluster{size}k": Variant(f"clusters of up to {size} KiB", make=("-C", f"{size * 1024}"))
                for size in (16, 64, 256)
            },
            "tail": Variant("the end of a file beside its inode", make=("-E", "ztailpacking")),
        },
    ),
    # No journal: it would never be written. Its image is as small as its files allow.
    Filesystem(
        "ext4-ro",
        "ext4",
        ("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal,^resize_inode"),
        read_only=("{options}", "-d", "{tree}", "{image}", "{room_kib}k"),
        after_make=("resize2fs", "-M", "{image}"),
        packages=("e2fsprogs",),
        modules=("ext4",),
        kconfig=("EXT4_FS",),
        identity=("-U", "{uuid}", "-E", "hash_seed={uuid}"),
        errors=_EXT_ERRORS,
        joined=_EXT_JOINED,
        idle=_EXT_IDLE,
        files=_EXT_FILES,
        colours=("#1e40af", "#7aa2ff"),
        variants={**_READ_ONLY, "block1k": Variant("blocks of 1 KiB", make=("-b", "1024"))},
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

LONGEST_TITLE: Final = 32
# It names folders and tests.
TITLE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}", re.ASCII)
_LONGEST: Final = 200
_CLOSE: Final = 0.6
_PARTS: Final = ("mkfs=", "mount=")
_OPEN: Final = re.compile(r"[:+](mkfs|mount)=[^+]*$")  # a comma may go on with its value
_OWN_OPTIONS: Final = {"mkfs": " ", "mount": ","}  # with what goes between those of a list
_OWN_HINT: Final = "base is a filesystem; mkfs and mount are its options, a text or a list, without a plus sign"
# No name has a blank, a quote or a plus sign in an option.
_FLAG: Final = re.compile(r"-[A-Za-z0-9]|--[a-z][a-z0-9-]*(=[A-Za-z0-9_.:%-]+)?", re.ASCII)
_OPTION: Final = re.compile(r"[A-Za-z0-9^~][A-Za-z0-9_.:=%^~*#@-]*", re.ASCII)
_WORD_HINT: Final = "for example mkfs=-O ^has_journal -I 128, mount=commit=60,nodelalloc; docs/suites.md has the rules"
# Another device for a log or for data, or another thing than a device that is mounted.
_OTHER_DEVICES: Final = frozenset(
    {
        *("device", "logdev", "rtdev", "journal_dev", "journal_path", "name", "file", "list-all"),
        *("loop", "bind", "rbind", "move", "remount"),
    }
)

FILESYSTEMS: Final = Rows("filesystem", "fsjoule_filesystems", Filesystem, lambda: _TABLE)


@lru_cache
def filesystem(name: str) -> Filesystem:
    """The filesystem of this name, with its options: `ext4`, `btrfs:zstd+noatime`, `ext4:mkfs=-I 128+commit=60`.

    After the colon are variants, options of mount (`mount=` before them may be left out) and words of mkfs. Before all
    of it may be a title: `mine=ext4:commit=60`. Equal options make equal names, in whatever order they are given. No
    file is read: a name says all. Raises ConfigError with the choices.
    """
    title, content = titled(name)
    if title and (not TITLE.fullmatch(title) or title in FILESYSTEMS or f"{title}=" in _PARTS):
        hint = f"at most {LONGEST_TITLE} small letters, digits, dots, hyphens and underlines, and no filesystem's name"
        raise ConfigError(f"{title!r} cannot be the name of a filesystem of your own", hint=hint)
    content, age = parted(content)
    plain, colon, text = content.partition(":")
    try:
        row = FILESYSTEMS[plain]
    except KeyError:
        raise _unknown("filesystem", plain, FILESYSTEMS) from None
    if age and (why := _ageless(row)):
        raise ConfigError(f"{row.name} {why}: it has no age", hint="leave it out, or its age")
    names, make, mount = _Parts.of(row, text.split("+")).reduced if colon else ((), (), ())
    variants = [row.variants[variant] for variant in names]
    chosen = (*(word for variant in variants for word in variant.make), *make)
    words = [
        *names,
        *(option if "=" in option or _is_bare(row, option) else f"mount={option}" for option in mount),
        *([f"mkfs={' '.join(make)}"] if make else []),
    ]
    whole = f"{title}={plain}" if title else plain
    whole += f":{'+'.join(words)}" if colon else ""
    whole += f"@{age.name}" if age else ""
    if len(whole) > _LONGEST:
        raise ConfigError(f"{whole[:40]}...: so many options ({len(whole)} characters)", hint=f"at most {_LONGEST}")
    return replace(
        row,
        name=whole,
        make=_made_with(row, chosen),
        modules=(*row.modules, *(module for variant in variants for module in variant.modules)),
        needs=tuple(symbol for variant in variants for symbol in variant.kconfig),
        verity=any(variant.verity for variant in variants),
        mount_options=(*row.mount_options, *(o for variant in variants for o in variant.mount), *mount),
        age=age,
    )


def _ageless(row: Filesystem) -> str:
    """Why no use of it can be replayed; empty if it can."""
    if row.raw:
        return "is the device itself"
    if row.read_only:
        return "is never written"
    return "" if row.medium is Medium.BLOCK else f"is on an {row.medium}, and use is replayed on block devices"


def named_filesystems(
    given: str | Iterable[str] | None, *, option: str = "--fs", lenient: bool = False
) -> tuple[str, ...]:
    """The filesystems of a list, whole and each once: `ext4,btrfs:zstd`, `ext4:mkfs=-O ^has_journal,mount=commit=60`.

    A comma begins the next filesystem if a filesystem's name follows; otherwise it belongs to the options. Names of the
    project's file are known, too. With `lenient` an unknown name stays as it is: runs from elsewhere may have it.
    Raises ConfigError.
    """
    own = own_filesystems()
    by_content: dict[str, str] = {}
    for name in _separated(pieces(given, option=option), choices := (*FILESYSTEMS, *own)):
        try:
            if (plain := _plain(name)) not in choices:
                raise _unknown("filesystem", plain, choices)
            whole = filesystem(_with_own(name, own)).name
        except ConfigError:
            if not lenient:
                raise
            whole = name
        if (first := by_content.setdefault(content_of(whole), whole)) != whole:
            raise ConfigError(f"{option}: {first} and {whole} are the same filesystem", hint="leave one out")
    titles = [title_of(name) for name in by_content.values()]
    if twice := [each for each in titles if titles.count(each) > 1]:
        raise ConfigError(f"{option}: two filesystems are called {twice[0]}", hint="give them different names")
    return tuple(by_content.values())


def _plain(name: str) -> str:
    """The row's name, or one of the project's file: `ext4` of `ext4:noatime@1y-logger`."""
    return re.split("[:@]", content_of(name), maxsplit=1)[0]


def _separated(texts: Iterable[str], choices: Collection[str]) -> list[str]:
    """The filesystems of a list that was cut at every comma. Raises ConfigError for an option that may be misspelt."""
    names: list[str] = []
    for piece in texts:
        if names and piece.startswith(_PARTS):
            names[-1] += f"{'+' if ':' in names[-1] else ':'}{piece}"
        elif names and _plain(piece) not in choices and _OPEN.search(names[-1]):
            if len(piece) > len("rw") and difflib.get_close_matches(piece, choices, cutoff=_CLOSE):
                raise _unknown("filesystem", piece, choices)
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def own_filesystems() -> dict[str, str]:
    """The filesystems of the project's file, by name: `mine=ext4:commit=60`. Raises ConfigError with file and line."""
    table = project_table("filesystems")
    return {} if table is None else {name: _own(table, name, values) for name, values in table.values.items()}


def _own(table: ProjectTable, name: str, values: Any) -> str:  # noqa: ANN401 - as TOML has it
    """The whole name of one of the project's filesystems. Raises ConfigError."""
    row = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
    if not isinstance(base := row.pop("base", None), str):
        raise table.error(f"{name!r} has no base", name, hint=_OWN_HINT)
    for key, value in row.items():
        if key not in _OWN_OPTIONS:
            raise table.error(f"unknown key {key!r}", name, key, hint=_OWN_HINT)
        texts = cast("list[Any]", value if isinstance(value, list) else [value])
        if not all(isinstance(each, str) and "+" not in each for each in texts):
            raise table.error(f"{key}: {value!r} is no option or list of options", name, key, hint=_OWN_HINT)
        base += f"{'+' if ':' in base else ':'}{key}={_OWN_OPTIONS[key].join(texts)}"
    try:
        return filesystem(f"{name}={base}").name
    except ConfigError as error:
        raise table.error(error.what, name, hint=error.hint) from error


def _with_own(name: str, own: Mapping[str, str]) -> str:
    """The name without a name of the project's file: `mine:noatime` becomes `ext4:commit=60+noatime`."""
    title, content = titled(name)
    content, age = parted(content)
    plain, colon, more = content.partition(":")
    if plain not in own:
        return name
    base = content_of(own[plain])
    if colon:
        base += f"{'+' if ':' in base else ':'}{more}"
    whole = f"{title}={base}" if title else base if colon else own[plain]
    return age.aged(whole) if age else whole


class _Parts(NamedTuple):
    """The chosen variants, and options of one's own: options of mkfs are `("-O", "^has_journal")` or `("-q",)`."""

    variants: set[str]
    make: list[tuple[str, ...]]
    mount: list[str]
    row: Filesystem

    @classmethod
    def of(cls, row: Filesystem, texts: Iterable[str]) -> _Parts:
        """Raises ConfigError for what is neither a variant nor an option, or might not be the scratch device's."""
        parts = cls(set(), [], [], row)
        for text in texts:
            key, equals, value = text.partition("=")
            if text in row.variants:
                parts.variants.add(text)
            elif equals and key == "mkfs":
                parts.make.extend(_make_options(row, value))
            elif (equals and key == "mount") or (_OPTION.fullmatch(text) and (equals or _is_bare(row, text))):
                parts.mount.extend(value.split(",") if key == "mount" else [text])
            else:
                raise _unknown(f"variant of {row.name}", text, row.variants, mount=bool(_OPTION.fullmatch(text)))
        if row.raw and (parts.make or parts.mount):
            raise ConfigError(f"{row.name} is the device itself: it has no options")
        for option in (*parts.mount, *(each for pair in parts.make for each in pair[1:])):
            _check_option(row, option)
        for one, other in combinations(sorted(parts.variants), 2):
            ours, theirs = _settings(row, one), _settings(row, other)
            if any(ours[key] != theirs[key] for key in ours.keys() & theirs.keys()):
                raise ConfigError(f"{row.name}: {one} and {other} exclude each other", hint="leave one out")
        return parts

    @property
    def reduced(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Variants, words of mkfs and options of mount, in the one order that they have.

        Options that are a variant's become the variant. Only options of one name keep their order: the last one counts.
        """
        make, mount = set(self.make), set(self.mount)
        for name, variant in self.row.variants.items():
            theirs = set(_split(_pairs(variant.make), self.row.joined)), set(variant.mount)
            keys = {_key(option) for option in variant.mount}
            alone = not any(_key(option) in keys for option in mount - theirs[1])
            if name in self.variants or (theirs[0] <= make and theirs[1] <= mount and alone and any(theirs)):
                self.variants.add(name)
                make, mount = make - theirs[0], mount - theirs[1]
        pairs = sorted(dict.fromkeys(each for each in self.make if each in make), key=lambda pair: pair[0])
        options = sorted(dict.fromkeys(each for each in self.mount if each in mount), key=_key)
        return tuple(sorted(self.variants)), _joined(pairs, self.row.joined), tuple(options)


def _make_options(row: Filesystem, text: str) -> list[tuple[str, ...]]:
    """The options of mkfs, the values of each in order. Raises ConfigError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"mkfs={text}: {error}", hint=_WORD_HINT) from error
    if not words:
        raise ConfigError("mkfs= has no option", hint=_WORD_HINT)
    options: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("-"):
            if not _FLAG.fullmatch(word):
                raise ConfigError(f"mkfs: {word!r}: a word has one option", hint=_WORD_HINT)
            name = word.partition("=")[0]
            if _is_one_of(name, row.idle):
                raise ConfigError(f"with {word} {row.make[0]} does not make a whole {row.name}", hint="leave it out")
            if _is_one_of(name, row.files):
                raise ConfigError(f"with {word} {row.make[0]} uses a file of the board's", hint="leave it out")
            options.append((word,))
        elif options and len(options[-1]) == 1:
            options[-1] += (",".join(sorted(word.split(","), key=lambda each: (each != "none", _key(each)))),)
        else:
            raise ConfigError(f"mkfs: {word!r} belongs to no option: no device may be named", hint=_WORD_HINT)
    return _split(options, row.joined)


def _is_one_of(name: str, options: Iterable[str]) -> bool:
    """Whether an option of mkfs is one of these; a long one may be abbreviated."""
    return any(each == name or (len(name) > len("--") and each.startswith(name)) for each in options)


def _check_option(row: Filesystem, text: str) -> None:
    """Raises ConfigError for an option that names a device or file, or that no name can have."""
    for option in text.split(","):
        if "/" in option or _key(option) in _OTHER_DEVICES:
            hint = f"options say how the scratch device gets {row.name}, not which other device or file it uses"
            raise ConfigError(f"{option!r} names a device or a file, or mounts something else", hint=hint)
        if not _OPTION.fullmatch(option):
            raise ConfigError(f"{option!r} is no option", hint=_WORD_HINT)


def _is_bare(row: Filesystem, option: str) -> bool:
    """Whether an option of mount is taken for one without `mount=`: a misspelt variant must not be."""
    if row.read_only or row.medium is Medium.MTD:
        return False  # it may be a compressor that is no variant
    return not difflib.get_close_matches(option, row.variants, cutoff=_CLOSE)


def _unknown(kind: str, value: str, choices: Iterable[str], *, mount: bool = False) -> ConfigError:
    error = ConfigError.unknown(kind, value, choices)
    near = difflib.get_close_matches(value, list(choices), cutoff=_CLOSE)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    more = f"; an option of mount is mount={value}" if mount else ""
    more += "; a plus sign joins options of one filesystem" if kind == "filesystem" else ""
    return ConfigError(error.what, hint=f"{guess}{error.hint}{more}")


def _key(option: str) -> str:
    """The name of an option, which a later one with the same name replaces: `noatime` and `atime`, `^quota`."""
    return option.partition("=")[0].lstrip("^~").removeprefix("no")


def _settings(row: Filesystem, variant: str) -> dict[tuple[str, str], str]:
    """What a variant sets: a second one that sets the same would replace it, and the name would say both."""
    chosen = row.variants[variant]
    found = {("mount", _key(option)): option for option in chosen.mount}
    for option, *values in _pairs(chosen.make):
        for value in (part for each in values for part in each.split(",")):
            found[option, _key(value) if option in row.joined or "=" in value else ""] = value
    return found


def _pairs(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Each option with its value."""
    pairs: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not pairs or len(pairs[-1]) > 1 or not pairs[-1][0].startswith("-"):
            pairs.append([word])
        else:
            pairs[-1].append(word)
    return [tuple(each) for each in pairs]


def _made_with(row: Filesystem, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The row's program with the chosen options, which replace its own: programs refuse, or take the last."""
    ours, theirs = _pairs(row.make), _pairs(chosen)
    values = {option: ",".join(v for o, *more in theirs if o == option for v in more) for option, *_ in theirs}
    made: list[tuple[str, ...]] = []
    for option, *value in ours:
        if value and option in values:
            keys = {_key(each) for each in values[option].split(",")}
            parts = (each for text in value for each in text.split(","))
            kept = [each for each in parts if _key(each) not in keys and not each.isdigit()]
            made += [(option, ",".join(kept))] if kept else []
        else:
            made.append((option, *value))
    return _joined([*made, *theirs], row.joined)


def _split(pairs: Iterable[tuple[str, ...]], once: Sequence[str]) -> list[tuple[str, ...]]:
    """The options with their values; of those that a program takes `once` each part of the value is an option."""
    return [
        (option, *part)
        for option, *value in pairs
        for part in (([each] for text in value for each in text.split(",")) if value and option in once else [value])
    ]


def _joined(pairs: Iterable[tuple[str, ...]], once: Sequence[str]) -> tuple[str, ...]:
    """The words of these options; those that a program takes `once` get all their values together."""
    merged: list[tuple[str, ...]] = []
    for option, *value in pairs:
        same = next((i for i, each in enumerate(merged) if each[0] == option and option in once), None)
        if same is None:
            merged.append((option, *value))
        else:
            merged[same] = (option, ",".join((*merged[same][1:], *value)))
    return tuple(word for pair in merged for word in pair)


def unmount_argv(kernel_type: str, directory: str) -> tuple[str, ...]:
    """The command that unmounts a filesystem by the kernel's name for its type."""
    row = next((row for row in FILESYSTEMS.values() if row.kernel_type == kernel_type), _TABLE[0])
    return row.unmount_argv(directory)


def modules_of(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module for name in names for module in filesystem(name).modules))


def dkms_package(module: str) -> str:
    """Debian's package with the source of a module that its kernels lack."""
    return next(row.dkms for row in FILESYSTEMS.values() if row.dkms and module in row.modules)
