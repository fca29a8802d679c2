"""A layer between a filesystem and its storage as data: the fields of a row of `fsjoule.layers`.

Layers are named with the storage device that they stand on, lowest first: `card+dm-integrity+dm-crypt` in plans, and
`SD card (QEMU 7.2) + dm-crypt` in series. So all that tells storage devices apart tells stacks apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fsjoule.model.emmc import storage_setting

NO_LAYERS: Final = "none"
JOINED: Final = "+"
_IN_SERIES: Final = " + "


class LayerPlace(StrEnum):
    """Where a layer is set up."""

    DEVICE = "device"  # above a block device: it is one itself
    DIRECTORY = "directory"  # on the mounted filesystem
    BOARD = "board"  # for the whole board, or its disk


@dataclass(frozen=True, slots=True)
class LayerVariant:
    """`values` replace the choices of the row's values, `words` go after the row's, `modules` are needed too."""

    note: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    words: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Programs are argument lists for the board.

    `up` sets it up, `down` takes it away and succeeds if it is not there; `prepare`, before the first `up`, writes the
    whole device. In arguments `{device}` is what is below, `{node}` the name of what it makes, `{disk}` the kernel's
    name of the disk, `{directory}` the mounted filesystem, `{words}` the number of `words` and they themselves; any
    other name is one of `values`, of which the first choice is the default. A value without choices is a variant's to
    give. The value `key` is a length in bits, and `{digits}` such a key.

    `modules` are needed; `loads` are modules that the kernel may ask for, by alias: whichever it has go onto the card.
    `packages` are Debian's, `kconfig` are symbols that build it in. `filesystems` are those that it goes with (empty:
    all), which are made with the words `make`. `algorithms` are names in /proc/crypto.
    """

    name: str
    note: str
    place: LayerPlace
    up: tuple[str, ...]
    down: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    words: tuple[str, ...] = ()
    variants: Mapping[str, LayerVariant] = field(default_factory=dict[str, LayerVariant])
    modules: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    kconfig: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    make: str = ""
    algorithms: tuple[str, ...] = ()


def base_of(storage: str) -> str:
    """What is below all layers, in a plan's words: `card:nocache` of `card:nocache+dm-crypt`."""
    return storage.partition(JOINED)[0]


def device_of(storage: str) -> str:
    """The storage device below all layers, without a setting: `card` of `card:nocache+dm-crypt`."""
    return storage_setting(base_of(storage))[0]


def stack_of(storage: str) -> str:
    """The layers above a storage device, in a plan's words; empty without."""
    return storage.partition(JOINED)[2]


def layered(device: str, stack: str) -> str:
    """A device with layers, in a plan's words: `card+dm-crypt`."""
    return f"{device}{JOINED}{stack}" if stack else device


def in_series(device: str, stack: str) -> str:
    """A device with layers in a series' words, for a device with a name of its own: `SD card (QEMU 7.2) + dm-crypt`."""
    return f"{device}{_IN_SERIES}{stack}" if stack else device


def of_series(storage: str) -> tuple[str, str]:
    """The device and its layers, by a series' words. Devices may have a plus sign in their names, but no ` + `."""
    device, _, stack = storage.partition(_IN_SERIES)
    return device, stack
