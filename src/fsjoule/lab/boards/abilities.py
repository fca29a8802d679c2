"""Ways of flashing that a U-Boot offers: from its build's configuration, or from the list that `help` prints. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from fsjoule.kernels.recipe import Recipe

_SET: Final = re.compile(r'^CONFIG_(\w+)=(?:"(.*)"|(.*))$', re.MULTILINE)
_COMMAND: Final = re.compile(r"^(\w+)\s+- ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FlashingWay:
    """A way to write a board's card; `lacks` are what the boot loader has not got for it."""

    name: str
    lacks: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Abilities:
    """Ways of flashing, and ways to find the kernel. `prompt`, `delay_s`: None if unknown."""

    ways: tuple[FlashingWay, ...]
    boots: tuple[str, ...]
    prompt: str | None = None
    delay_s: int | None = None


_OR: Final = " or "
# Name, options of which all are needed, commands of which all are needed, remark. One of `a or b` is enough.
_WAYS: Final = (
    ("USB mass storage (ums)", ("CMD_USB_MASS_STORAGE",), ("ums",), ""),
    ("fastboot over USB", ("USB_FUNCTION_FASTBOOT",), ("fastboot",), ""),
    ("fastboot over UDP", ("UDP_FUNCTION_FASTBOOT",), ("fastboot",), ""),
    ("fastboot over TCP", ("TCP_FUNCTION_FASTBOOT",), ("fastboot",), ""),
    ("network (TFTP, mmc write)", ("CMD_TFTPBOOT", "CMD_MMC", "MMC_WRITE"), ("tftpboot", "mmc"), ""),
    (
        "in place (a second kernel, tried once)",
        ("CMD_SYSBOOT or CMD_FS_GENERIC", "CMD_SOURCE", "CMD_ITEST", "CMD_MEMORY"),
        ("sysboot or load", "source", "itest", "mw"),
        "",
    ),
    ("DFU", ("CMD_DFU",), ("dfu",), "labgrid has a driver, fsjoule no flasher"),
)
_BOOTS: Final = (
    ("extlinux.conf", ("CMD_SYSBOOT", "BOOTMETH_EXTLINUX"), ("sysboot", "bootflow")),
    ("boot.scr", ("CMD_SOURCE", "BOOTMETH_SCRIPT"), ("source",)),
)
_TOLD_BY_HELP: Final = "`help` does not tell over which line"


def parse_config(text: str) -> dict[str, str]:
    """Options that are set in a `.config`, without CONFIG_ and quotation marks."""
    return {match[1]: match[2] if match[2] is not None else match[3] for match in _SET.finditer(text)}


def abilities_of(config: Mapping[str, str]) -> Abilities:
    there = {option for option, value in config.items() if value == "y"}
    ways = tuple(FlashingWay(name, _lacking(options, there, "CONFIG_"), remark) for name, options, _, remark in _WAYS)
    boots = tuple(name for name, options, _ in _BOOTS if any(config.get(option) == "y" for option in options))
    delay = config.get("BOOTDELAY")
    return Abilities(ways, boots, config.get("SYS_PROMPT"), None if delay is None else int(delay))


def _lacking(needed: Sequence[str], there: AbstractSet[str], what: str) -> tuple[str, ...]:
    """Those that are not there, each with `what` before it."""
    choices = (each.split(_OR) for each in needed)
    return tuple(_OR.join(f"{what}{one}" for one in some) for some in choices if there.isdisjoint(some))


def commands_in(help_text: str) -> frozenset[str]:
    """The commands in the output of U-Boot's `help`."""
    return frozenset(_COMMAND.findall(help_text.replace("\r", "")))


def abilities_by_help(help_text: str) -> Abilities:
    """The same from a running U-Boot. Fastboot is one command for all lines."""
    there = commands_in(help_text)
    ways = tuple(
        FlashingWay(
            name,
            _lacking(commands, there, "the command "),
            _TOLD_BY_HELP if "fastboot" in commands and "fastboot" in there else remark,
        )
        for name, _, commands, remark in _WAYS
    )
    return Abilities(ways, tuple(name for name, _, commands in _BOOTS if there & set(commands)))


def abilities_text(recipe: Recipe, abilities: Abilities | None) -> str:
    """Ways of flashing, how the kernel is found, and the prompt; `abilities` is None if nothing is known."""
    lines = ["ways to flash the card:", "  yes  SD mux (needs nothing of the boot loader)"]
    if abilities is None:
        lines.append("  ?    all others: this recipe names no boot loader whose configuration Debian has")
        return "\n".join(lines)
    for way in abilities.ways:
        remark = f" ({way.remark})" if way.remark else ""
        if way.lacks:
            lines.append(f"  no   {way.name}: without {', '.join(way.lacks)}{remark}")
        else:
            lines.append(f"  yes  {way.name}{remark}")
    lines.append(f"finds the kernel by: {', '.join(abilities.boots) or 'neither extlinux.conf nor boot.scr'}")
    if abilities.prompt is not None:
        known = recipe.board is None or recipe.board.prompt == abilities.prompt
        other = "" if known else f", but {recipe.file} says {recipe.board.prompt!r}" if recipe.board else ""
        delay = "" if abilities.delay_s is None else f", after {abilities.delay_s} s without a key it boots"
        lines.append(f"prompt: {abilities.prompt!r}{other}{delay}")
    return "\n".join(lines)
