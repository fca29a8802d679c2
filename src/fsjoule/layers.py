"""The table of layers between filesystems and storage, one row each: encryption, integrity, schedulers, swap.

`model/layer.py` explains the fields. Adding a layer is adding one row.

A layer has variants and values behind colons, `dm-crypt:adiantum`, `dm-crypt:inline:key=256`; a stack has layers with
plus signs between them, lowest first: `dm-integrity+dm-crypt`. Keys are fixed and no secret: what is encrypted here is
what fio writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.hooks import Rows
from fsjoule.model.age import parted
from fsjoule.model.filesystem import content_of
from fsjoule.model.labels import listed
from fsjoule.model.layer import JOINED, NO_LAYERS, Layer, LayerPlace, LayerVariant, base_of, layered, stack_of

CRYPTO_ALIAS: Final = "crypto-"  # how the kernel asks for modules of its crypto API
_BITS: Final = "key"  # the value of a layer that is the length of its key
_BYTE: Final = 8
# A table takes exactly the sectors of what is below. What uses 4 KiB needs a whole number of them.
_CRYPT: Final = (
    'sectors=$(blockdev --getsz "$1") && '
    'dmsetup create "$2" --verifyudev --table "0 $((sectors / 8 * 8)) crypt $3 $4 0 $1 0 $5"'
)
_REMOVE: Final = '! dmsetup info "$1" > /dev/null 2>&1 || dmsetup remove --verifyudev --retry "$1"'
# The kernel formats a device of 4 KiB whose superblock is zero, and writes there how many it provides. Source: the
# kernel's Documentation/admin-guide/device-mapper/dm-integrity.rst.
_PROVIDED: Final = 'size=$(od -An -tu8 -j16 -N8 "$1" | tr -d " ")'
_INTEGRITY: Final = f'{_PROVIDED} && dmsetup create "$2" --verifyudev --table "0 $size integrity $1 0 - $3 $4"'
# Blocks that were never written have wrong checksums, so all are written; without the journal, which would double it.
_INTEGRITY_FORMAT: Final = (
    'dd if=/dev/zero of="$1" bs=4096 count=1 conv=fsync 2> /dev/null && '
    'dmsetup create "$2" --verifyudev --table "0 8 integrity $1 0 - J $3" && dmsetup remove --retry "$2" && '
    f'{_PROVIDED} && dmsetup create "$2" --verifyudev --table "0 $size integrity $1 0 - D $3" && '
    'blkdiscard -z -f "/dev/mapper/$2" && dmsetup remove --verifyudev --retry "$2"'
)
# A root directory of ext4 cannot be encrypted, so a folder takes its place. A policy that is there is set once more.
# Debian has no fscryptctl; xfs_io does the same on any filesystem. Modes are FSCRYPT_MODE_* of linux/fscrypt.h.
_ENCRYPT: Final = (
    'mkdir -p "$1/encrypted" && id=$(printf %.64s "$2" | xfs_io -r -c add_enckey "$1") && '
    'xfs_io -r -c "set_encpolicy -v 2 -c $3 -n $4 ${id##* }" "$1/encrypted" && mount --bind "$1/encrypted" "$1"'
)
_FOR_SLOW: Final = "Adiantum, for processors without instructions for AES"
_ADIANTUM: Final = "adiantum(xchacha12,aes)"
_SCHEDULER: Final = "/sys/block/{disk}/queue/scheduler"
_BEFORE: Final = "/tmp/fsjoule/scheduler-before"  # noqa: S108 - on the board, whose /tmp is ours alone
_SCHEDULE: Final = f'sed "s/.*\\[\\(.*\\)\\].*/\\1/" "$1" > {_BEFORE} && echo "$2" > "$1"'
_SCHEDULE_BACK: Final = f'[ ! -f {_BEFORE} ] || {{ cat {_BEFORE} > "$1" && rm {_BEFORE}; }}'
_ZRAM: Final = (
    'echo "$2" > /sys/block/zram0/comp_algorithm && echo "$1" > /sys/block/zram0/disksize && '
    "mkswap /dev/zram0 && swapon -p 100 /dev/zram0"
)
_ZRAM_OFF: Final = (
    "! grep -q ^/dev/zram0 /proc/swaps || swapoff /dev/zram0; "
    "[ ! -e /sys/block/zram0/reset ] || echo 1 > /sys/block/zram0/reset"
)

_TABLE: Final = (
    Layer(
        "dm-crypt",
        "encrypts the device, as LUKS does; AES-XTS with a key of 512 bits is cryptsetup's default",
        LayerPlace.DEVICE,
        up=("sh", "-c", _CRYPT, "sh", "{device}", "{node}", "{cipher}", "{digits}", "{words}"),
        down=("sh", "-c", _REMOVE, "sh", "{node}"),
        values={"cipher": ("aes-xts-plain64",), _BITS: ("512", "256"), "crypto": ("xts(aes)",)},
        variants={
            "adiantum": LayerVariant(
                _FOR_SLOW,
                {"cipher": ("xchacha12,aes-adiantum-plain64",), _BITS: ("256",), "crypto": (_ADIANTUM,)},
                modules=("adiantum",),
            ),
            "inline": LayerVariant(
                "encrypts at once, without queues", words=("no_read_workqueue", "no_write_workqueue")
            ),
            "sector4k": LayerVariant("encrypts 4 KiB at a time", words=("sector_size:4096",)),
            "discard": LayerVariant("passes discards on", words=("allow_discards",)),
        },
        modules=("dm-crypt",),
        loads=("crypto-xts(aes)", "crypto-xts", "crypto-nhpoly1305", "crypto-xchacha12"),
        packages=("dmsetup",),
        kconfig=("BLK_DEV_DM", "DM_CRYPT", "CRYPTO_AES", "CRYPTO_XTS"),
        algorithms=("{crypto}",),
    ),
    Layer(
        "dm-integrity",
        "checksums of all blocks, written through a journal",
        LayerPlace.DEVICE,
        prepare=("sh", "-c", _INTEGRITY_FORMAT, "sh", "{device}", "{node}", "{words}"),
        up=("sh", "-c", _INTEGRITY, "sh", "{device}", "{node}", "{mode}", "{words}"),
        down=("sh", "-c", _REMOVE, "sh", "{node}"),
        values={"mode": ("J",), "hash": ("crc32c",)},
        words=("internal_hash:{hash}",),
        variants={
            "nojournal": LayerVariant("no journal: after a power cut checksums can be wrong", {"mode": ("D",)}),
            "bitmap": LayerVariant("a bitmap of what is being written, instead of a journal", {"mode": ("B",)}),
            "block4k": LayerVariant("a checksum for 4 KiB instead of 512 bytes", words=("block_size:4096",)),
            "sha256": LayerVariant("SHA-256 instead of CRC-32C", {"hash": ("sha256",)}),
        },
        modules=("dm-integrity",),
        loads=("crypto-crc32c", "crypto-sha256"),
        packages=("dmsetup",),
        kconfig=("BLK_DEV_DM", "DM_INTEGRITY", "CRYPTO_CRC32C"),
        algorithms=("{hash}",),
    ),
    Layer(
        "fscrypt",
        "the filesystem encrypts contents and names of files",
        LayerPlace.DIRECTORY,
        up=("sh", "-c", _ENCRYPT, "sh", "{directory}", "{digits}", "{contents}", "{names}"),
        down=("true",),  # it goes with the mount
        values={"contents": ("1",), "names": ("4",), _BITS: ("512",), "crypto": ("xts(aes)",)},
        variants={
            "adiantum": LayerVariant(
                _FOR_SLOW,
                {"contents": ("9",), "names": ("9",), _BITS: ("256",), "crypto": (_ADIANTUM,)},
                modules=("adiantum",),
            ),
        },
        loads=("crypto-cts(cbc(aes))", "crypto-cts", "crypto-sha512", "crypto-hmac"),
        packages=("xfsprogs",),
        kconfig=("FS_ENCRYPTION", "CRYPTO_AES", "CRYPTO_XTS", "CRYPTO_CTS"),
        filesystems=("ext4", "f2fs"),
        make="-O encrypt",
        algorithms=("{crypto}",),
    ),
    Layer(
        "scheduler",
        "the disk's I/O scheduler",
        LayerPlace.BOARD,
        up=("sh", "-c", _SCHEDULE, "sh", _SCHEDULER, "{scheduler}"),
        down=("sh", "-c", _SCHEDULE_BACK, "sh", _SCHEDULER),
        values={"scheduler": ()},
        variants={
            "none": LayerVariant("requests in the order in which they come", {"scheduler": ("none",)}),
            "mq-deadline": LayerVariant(
                "reads before writes, by deadlines", {"scheduler": ("mq-deadline",)}, modules=("mq-deadline",)
            ),
            "bfq": LayerVariant("a share of the disk for each process", {"scheduler": ("bfq",)}, modules=("bfq",)),
        },
        kconfig=("MQ_IOSCHED_DEADLINE", "IOSCHED_BFQ"),
    ),
    Layer(
        "zram",
        "swap in compressed memory",
        LayerPlace.BOARD,
        up=("sh", "-c", _ZRAM, "sh", "{size}", "{algorithm}"),
        down=("sh", "-c", _ZRAM_OFF),
        values={"size": ("128M", "64M", "256M", "512M"), "algorithm": ("lzo-rle",)},
        variants={
            "lz4": LayerVariant("compresses with LZ4", {"algorithm": ("lz4",)}),
            "zstd": LayerVariant("compresses more than LZO, and slower", {"algorithm": ("zstd",)}),
        },
        modules=("zram",),
        loads=("crypto-lzo-rle", "crypto-lz4", "crypto-zstd"),
        packages=("mount", "util-linux"),
        kconfig=("ZRAM", "SWAP"),
    ),
)
LAYERS: Final = Rows("layer", "fsjoule_layers", Layer, lambda: _TABLE)


@dataclass(frozen=True, slots=True)
class ChosenLayer:
    """A layer with its variants and values; `name` has those that are not the default, in the one order."""

    row: Layer
    name: str
    values: Mapping[str, str]
    words: tuple[str, ...]
    modules: tuple[str, ...]

    def argv(self, program: tuple[str, ...], **given: str) -> tuple[str, ...]:
        """A program of the row's for the board, with what stands for something; braces of shell stay."""
        digits = bytes(range(int(self.values.get(_BITS, "0")) // _BYTE)).hex()
        texts = {**self.values, **given, "digits": digits}
        words = [word.format(**texts) for word in self.words]
        texts["words"] = " ".join((str(len(words)), *words))
        return tuple(re.sub(r"\{([a-z]+)\}", lambda name: texts.get(name[1], name[0]), part) for part in program)


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers above a storage device, lowest first; `name` is empty without any."""

    name: str = ""
    layers: tuple[ChosenLayer, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(module for each in self.layers for module in each.modules))

    @property
    def on_directory(self) -> bool:
        return any(each.row.place is LayerPlace.DIRECTORY for each in self.layers)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names in /proc/crypto."""
        return tuple(name.format(**each.values) for each in self.layers for name in each.row.algorithms)

    @property
    def is_prepared(self) -> bool:
        """Whether a layer has written the whole device: a purge would take that away."""
        return any(each.row.prepare for each in self.layers)

    def made_on(self, filesystem: str) -> str:
        """The filesystem's name with the options that the layers need. Raises ConfigError if they cannot be on it."""
        plain, age = parted(filesystem)
        base = content_of(plain).partition(":")[0]
        for each in self.layers:
            row = each.row
            if row.filesystems and base not in row.filesystems:
                hint = f"it goes with {', '.join(row.filesystems)}: leave the other filesystems or the layer out"
                raise ConfigError(f"{row.name} cannot be on {base}", hint=hint)
            if row.make:
                plain += f"{'+' if ':' in plain else ':'}mkfs={row.make}"
        return f"{plain}@{age.name}" if age else plain


NOTHING: Final = Stack()


@lru_cache
def stack(name: str) -> Stack:
    """The stack of this name: `dm-integrity+dm-crypt:adiantum`; `none`, or nothing, is without layers.

    Raises ConfigError for an unknown layer, variant or value, and for layers in an order that cannot be.
    """
    if name in ("", NO_LAYERS):
        return NOTHING
    if NO_LAYERS in (parts := name.split(JOINED)):
        raise ConfigError(f"{name}: {NO_LAYERS} is without layers", hint=f"leave {NO_LAYERS} out, or all others")
    layers = tuple(map(_layer, parts))
    for i, each in enumerate(layers):
        lower = [below.row for below in layers[:i]]
        if each.row.place is LayerPlace.DEVICE and any(row.place is LayerPlace.DIRECTORY for row in lower):
            raise ConfigError(f"{name}: {each.name} is a device below all directories", hint="name it first")
        if each.row.place is not LayerPlace.DEVICE and each.row in lower:
            raise ConfigError(f"{each.row.name} is there twice in {name}", hint="leave one out")
    return Stack(JOINED.join(each.name for each in layers), layers)


def named_stacks(given: str | None) -> tuple[str, ...]:
    """The names of the stacks of `--stack`, in order; empty without one. Raises ConfigError."""
    names = tuple(sorted({stack(each).name for each in listed(given, option="--stack")}))
    if given is not None and not names:
        raise ConfigError("--stack names no layer", hint=f"for example --stack {NO_LAYERS},dm-crypt")
    return names


def named_storages(given: str) -> tuple[str, ...]:
    """The storage devices of `--storage`, with their layers. Raises ConfigError."""
    return tuple(layered(base_of(name), stack(stack_of(name)).name) for name in listed(given, option="--storage"))


def modules_of_layers() -> tuple[str, ...]:
    """Modules and aliases that a card has for all layers, as far as its kernel has them."""
    rows = LAYERS.values()
    more = (name for row in rows for each in row.variants.values() for name in each.modules)
    return tuple(dict.fromkeys([*(name for row in rows for name in (*row.modules, *row.loads)), *more]))


def drivers(text: str, algorithms: Iterable[str]) -> dict[str, str]:
    """The kernel's driver of each algorithm that /proc/crypto has: of several, that of the highest priority.

    The kernel takes that one, too. Source: Documentation/crypto/architecture.rst, "Crypto API Cipher References And
    Priority".
    """
    entries = [dict(re.findall(r"^(\w+) *: (.*)$", block, re.MULTILINE)) for block in text.split("\n\n")]
    best: dict[str, str] = {}
    for name in algorithms:
        those = [each for each in entries if each.get("name") == name and each.get("internal") != "yes"]
        if those:
            best[name] = max(those, key=lambda each: int(each.get("priority", "0"))).get("driver", "")
    return best


def _layer(text: str) -> ChosenLayer:
    plain, *options = text.split(":")
    if plain not in LAYERS:
        raise ConfigError.unknown("layer", plain, [NO_LAYERS, *LAYERS])
    row = LAYERS[plain]
    variants = [each for each in row.variants if each in options]
    choices = dict(row.values)
    for each in variants:
        for name, values in row.variants[each].values.items():
            if choices[name] != row.values[name]:
                raise ConfigError(f"{text}: {' and '.join(variants)} exclude each other", hint="leave one out")
            choices[name] = values
    chosen = {name: values[0] for name, values in choices.items() if values}
    named: list[str] = []
    for option in options:
        name, equals, value = option.partition("=")
        if not equals and option in row.variants:
            continue
        if name not in choices or not equals:
            settable = (f"{each}=" for each, values in row.values.items() if len(values) > 1)
            raise ConfigError.unknown(f"variant of {plain}", option, [*row.variants, *settable])
        if value not in choices[name]:
            what = f"key of {value!r} bits" if name == _BITS else f"{name} {value!r}"
            hint = f"choose from: {', '.join(choices[name])}"
            raise ConfigError(f"{':'.join([plain, *variants])} takes no {what}", hint=hint)
        chosen[name] = value
        named += [option] if value != choices[name][0] else []
    if lacking := [name for name in choices if name not in chosen]:
        hint = f"choose from: {', '.join(f'{plain}:{each}' for each in row.variants)}"
        raise ConfigError(f"{plain} does not say which {lacking[0]}", hint=hint)
    return ChosenLayer(
        row,
        ":".join([plain, *variants, *sorted(named)]),
        chosen,
        (*row.words, *(word for each in variants for word in row.variants[each].words)),
        (*row.modules, *(module for each in variants for module in row.variants[each].modules)),
    )
