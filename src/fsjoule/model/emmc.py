"""What an eMMC says of itself: its wear, its cache, and what it can do (JESD84-B51, the register EXT_CSD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EXT_CSD_BYTES: Final = 512
NO_CACHE: Final = "nocache"
WITHOUT_CACHE: Final = " without its cache"  # ends the name of such a storage device in series

_VERSIONS: Final = {3: "4.3", 5: "4.41", 6: "4.5", 7: "5.0", 8: "5.1"}
# 7.4.38 and 7.4.39: life time counts tenths of the life that the maker expects, and 0x0B is beyond it; of the reserved
# blocks 80 % are in use at a warning, 90 % when it is urgent.
_WORN: Final = 0x09
_LIFE_OVER: Final = 0x0B
_WARNING: Final = 2
_URGENT: Final = 3
_RESERVE: Final = {1: "normal", _WARNING: "80 % used", _URGENT: "urgent"}
# Bytes of the register, and bits.
_BKOPS_ENABLE, _CACHE_CONTROL, _REVISION, _SECURE_FEATURES, _CACHE_SIZE = 163, 33, 192, 231, 249
_PRE_EOL_INFO, _LIFE_A, _LIFE_B, _BKOPS_SUPPORT = 267, 268, 269, 502
_TRIM, _SANITIZE = 1 << 4, 1 << 6
_DISCARD_SINCE: Final = 6


@dataclass(frozen=True, slots=True)
class EmmcState:
    """An eMMC at one moment. `revision` is that of its register; what an old one does not define is 0.

    `cache_kbit` is the size of its volatile cache, None if the board does not tell, and `cache_on` whether it is used.
    `life_a` and `life_b` are the tenths of its life that its two kinds of blocks have begun (11: over), `pre_eol` says
    how many spare blocks it has used: 1 normal, 2 from 80 %, 3 from 90 % on. `bkops` is how it does its background
    work: `auto`, `manual` (when told), `off`, or empty if it has none.
    """

    revision: int
    life_a: int = 0
    life_b: int = 0
    pre_eol: int = 0
    cache_kbit: int | None = None
    cache_on: bool = False
    trim: bool = False
    discard: bool = False
    sanitize: bool = False
    bkops: str = ""

    @property
    def worn_out(self) -> bool:
        """Whether figures of it are doubtful."""
        return max(self.life_a, self.life_b) >= _LIFE_OVER or self.pre_eol == _URGENT

    @property
    def worn(self) -> bool:
        return max(self.life_a, self.life_b) >= _WORN or self.pre_eol >= _WARNING

    @property
    def wear(self) -> str:
        """`up to 20 % of its life is used, reserved blocks normal`; empty if it does not count its wear."""
        worst, said = max(self.life_a, self.life_b), list[str]()
        if worst:
            said.append("its life is used up" if worst >= _LIFE_OVER else f"up to {worst * 10} % of its life is used")
        if self.pre_eol:
            said.append(f"reserved blocks {_RESERVE.get(self.pre_eol, f'{self.pre_eol:#x}')}")
        return ", ".join(said)

    @property
    def abilities(self) -> str:
        """`eMMC 5.1, cache of 4096 Kbit on, TRIM, discard, sanitize, BKOPS auto`."""
        named = {"TRIM": self.trim, "discard": self.discard, "sanitize": self.sanitize}
        said = [f"eMMC {_VERSIONS.get(self.revision, f'of register revision {self.revision}')}"]
        if self.cache_kbit is not None:
            on = "on" if self.cache_on else "off"
            said.append(f"cache of {self.cache_kbit} Kbit {on}" if self.cache_kbit else "no cache")
            said += [name for name, has in named.items() if has] or ["no TRIM"]
            said.append(f"BKOPS {self.bkops}" if self.bkops else "no BKOPS")
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class EmmcFacts:
    """An eMMC of a run: at its first use in the run's first boot, and when it was looked at last."""

    before: EmmcState
    after: EmmcState

    @property
    def text(self) -> str:
        """One line: what it is and can do, and its wear before and after."""
        before, after = (each.wear or "it tells no wear" for each in (self.before, self.after))
        return f"{self.before.abilities}; {before}" + (f" before, {after} after" if before != after else "")


def parse_ext_csd(digits: str) -> EmmcState | None:
    """The state in a register as debugfs prints it, 512 bytes in hexadecimal; None for anything else."""
    try:
        register = bytes.fromhex(digits.strip())
    except ValueError:
        return None
    if len(register) != EXT_CSD_BYTES:
        return None
    revision, features = register[_REVISION], register[_SECURE_FEATURES]
    bkops = ""
    if register[_BKOPS_SUPPORT] & 1:
        enabled = register[_BKOPS_ENABLE]
        bkops = "auto" if enabled & 2 else "manual" if enabled & 1 else "off"
    return EmmcState(
        revision,
        life_a=register[_LIFE_A],
        life_b=register[_LIFE_B],
        pre_eol=register[_PRE_EOL_INFO],
        cache_kbit=int.from_bytes(register[_CACHE_SIZE : _CACHE_SIZE + 4], "little"),
        cache_on=bool(register[_CACHE_CONTROL] & 1),
        trim=bool(features & _TRIM),
        discard=revision >= _DISCARD_SINCE,
        sanitize=bool(features & _SANITIZE),
        bkops=bkops,
    )


def parse_attributes(text: str) -> EmmcState | None:
    """The state by the kernel's attributes rev, pre_eol_info and life_time, without debugfs; None without them.

    They are the numbers `0x8 0x01 0x02 0x01`, in this order.
    """
    try:
        revision, pre_eol, life_a, life_b = (int(word, 16) for word in text.split())
    except ValueError:
        return None
    return EmmcState(revision, life_a=life_a, life_b=life_b, pre_eol=pre_eol)


def storage_setting(name: str) -> tuple[str, bool]:
    """A storage device of the board, and whether it is measured without its cache: `emmc:nocache`.

    Another setting stays in the name, which no device has then.
    """
    device, _, setting = name.partition(":")
    return (device, True) if setting == NO_CACHE else (name, False)
