"""The eMMCs of a booted board: what they say of themselves, and their cache, which is put back as it was."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fsjoule.errors import BoardError, LabError
from fsjoule.model.emmc import EmmcState, parse_attributes, parse_ext_csd
from fsjoule.ports import Shell

_log: Final = logging.getLogger(__name__)

_DEBUG: Final = "/sys/kernel/debug"
_TIMEOUT_S: Final = 30.0
# The register by debugfs, which asks the card; else the kernel's attributes, as it read them when it found the card.
# `queue/write_cache` says nothing of a cache: a card with reliable writes has "write back" without any.
_ASK: Final = (
    'cd "/sys/class/block/$1/device" 2>/dev/null && [ "$(cat type)" = MMC ] || exit 0; '
    f"[ -d {_DEBUG}/block ] || mount -t debugfs debugfs {_DEBUG}; "
    f'card=$(basename "$(pwd -P)"); cat "{_DEBUG}/${{card%%:*}}/$card/ext_csd" 2>/dev/null || '
    "cat rev pre_eol_info life_time"
)


def look(shell: Shell, device: str) -> EmmcState | None:
    """The state of a block device that is an eMMC; None for any other, and for one that tells nothing."""
    said = shell.run(("sh", "-c", _ASK, "sh", device), timeout_s=_TIMEOUT_S).stdout
    return parse_ext_csd(said) or parse_attributes(said)


@dataclass
class Emmcs:
    """The eMMCs of one boot: `seen` has their states by the board's name of the storage device."""

    shell: Shell
    seen: dict[str, EmmcState] = field(default_factory=dict[str, EmmcState])
    _devices: dict[str, str] = field(default_factory=dict[str, str])
    _without: str = ""

    def look(self, name: str, device: str) -> None:
        """See what the storage device says of itself, if it is an eMMC."""
        self._devices[name] = device
        if (state := look(self.shell, device)) is not None:
            self.seen[name] = state

    def look_again(self) -> None:
        """See what those say that were seen before, each as it was found."""
        self.restore()
        for name in tuple(self.seen):
            self.look(name, self._devices[name])

    def without_cache(self, name: str, device: str) -> None:
        """Switch the cache of a device off. Raises BoardError if it has none, or if it stays on."""
        self.look(name, device)
        state = self.seen.get(name)
        if state is None or not state.cache_kbit:
            why = "is no eMMC" if state is None else "does not tell of a cache"
            why = "has no cache" if state and state.cache_kbit == 0 else why
            raise BoardError(
                f"{name} ({device}) {why}, and was to be measured without its cache: nothing was written",
                hint=f"--storage {name}, without a setting",
                transient=False,
            )
        if not state.cache_on:
            return  # nor is it switched on afterwards
        self._without = device
        said = self._switch("disable")
        if (now := look(self.shell, device)) is None or now.cache_on:
            self._without = ""
            raise BoardError(
                f"the cache of {name} ({device}) stays on: {said}",
                hint="the board needs the program mmc (Debian's package mmc-utils)",
                transient=False,
            )

    def restore(self) -> None:
        """Switch the cache on again, if it was switched off. A board that does not answer forgets it without power."""
        if self._without:
            with suppress(LabError):
                said = self._switch("enable")
                if said:
                    _log.warning("the cache of %s: %s", self._without, said)
            self._without = ""

    def complaints(self) -> list[str]:
        """Why a measurement without cache is invalid: Linux switches it on when it starts a card anew."""
        now = look(self.shell, self._without) if self._without else None
        return ["the eMMC's cache came on again: Linux has started the card anew"] if now and now.cache_on else []

    def notes(self, name: str) -> list[str]:
        """What a reader should know of figures of this storage device."""
        state = self.seen.get(name)
        if state is None or not state.worn_out:
            return []
        return [f"the eMMC {name} is worn out ({state.wear}): its figures are doubtful"]

    def _switch(self, way: str) -> str:
        """The program's output if it failed, else nothing."""
        done = self.shell.run(("mmc", "cache", way, f"/dev/{self._without}"), timeout_s=_TIMEOUT_S)
        return done.stdout.strip()[-300:] if done.exit_code != 0 else ""
