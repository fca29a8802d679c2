"""ports.Board and ports.BoardParts on a labgrid target."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from labgrid import Target

from fsjoule.errors import ConfigError, LabError, Part
from fsjoule.host.cache.stages import file_sha256
from fsjoule.lab.facts import board_facts
from fsjoule.lab.flashers import DiskImage, NamedCard
from fsjoule.lab.shell import BoardShell
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.translate import lab_errors
from fsjoule.model import BoardFacts, ImageFacts
from fsjoule.model.power_on import PowerOn
from fsjoule.ports import Cut, LabHealth

_log: Final = logging.getLogger(__name__)


class LabgridBoard:
    """The board of a labgrid target, with its possible card images, by kernel and root filesystem.

    It is ports.BoardParts, too.
    """

    def __init__(
        self,
        target: Target,
        cards: Mapping[tuple[str, str], DiskImage],
        set_seed: Callable[[int], None] = lambda _seed: None,
        losses: Callable[[], tuple[str, ...]] = tuple,
        card_file: Callable[[], Path | None] = lambda: None,
        *,
        record_writes: Callable[[], Path | None] = lambda: None,
        own_lines: Callable[[], PowerOn | None] = lambda: None,
        health: LabHealth | None = None,
    ) -> None:
        """What are callables, and `health`, reach a virtual board, beside labgrid."""
        self._strategy: BoardStrategy = target.get_driver("BoardStrategy")
        if health is not None:
            self._strategy.health = health
        self._cards = cards
        self._set_seed = set_seed
        self._losses = losses
        self._card_file = card_file
        self._record_writes = record_writes
        self._own_lines = own_lines
        self._shell: BoardShell | None = None

    def prepare(self, kernel: str, root_filesystem: str) -> None:
        wanted = (kernel, root_filesystem)
        if wanted not in self._cards:
            raise ConfigError.unknown("card image", " with ".join(wanted), map(" with ".join, self._cards))
        self._shell = None
        self._strategy.card = self._cards[wanted]
        if len(self._cards) > 1:
            # With several cards, one kernel must not start from a fresh card and the next from one after a power cut.
            self._strategy.forget_card()
        _log.info("card with kernel %s and %s as its root", kernel, root_filesystem)
        self._strategy.transition("flashed")

    def boot(self, seed: int = 1) -> BoardShell:
        if self._strategy.guest_time:
            self._set_seed(seed)
        self._strategy.transition("booted")
        self._shell = self._strategy.board_shell
        return self._shell

    def cut(self, after_s: float, seed: int) -> Cut:
        self._shell = None
        self._set_seed(seed)
        return Cut(self._strategy.cut(after_s), self._losses())

    def check_ours(self) -> None:
        self._strategy.guard.check()

    def card_file(self) -> Path | None:
        return self._card_file() if self._strategy.guest_time else None

    def card_image(self) -> Path:
        return self._chosen.path

    def put_card(self, content: Path) -> None:
        self._shell = None
        self._strategy.card = NamedCard(content, replace(self._chosen.facts, card_sha256=file_sha256(content)))
        # Also where the content is that of the image that is there: its block map has left out some of it.
        self._strategy.forget_card()
        self._strategy.transition("flashed")

    def since_power_on(self) -> PowerOn:
        if self._strategy.guest_time:
            own = self._own_lines()
            if own is None:
                hint = "measure on the computer of the lab"
                raise LabError("a board in guest time tells its console's times on its own computer only", hint=hint)
            return own
        recorder = self._strategy.recorder
        if not recorder.is_whole:
            hint = "let the kernel say less: quiet, loglevel=4"
            raise LabError("the console has said so much that its begin is not kept", hint=hint)
        return PowerOn(*self._strategy.switched_on_s, recorder.lines())

    def record_writes(self) -> Path | None:
        return self._record_writes()

    def off(self) -> None:
        self._shell = None
        self._strategy.transition("off")

    @property
    def shell(self) -> BoardShell | None:
        """The shell of the booted board."""
        return self._shell

    @property
    def boot_limit_s(self) -> float:
        return float(self._strategy.boot_timeout)

    def power_on(self) -> None:
        self._leave_shell()
        self._strategy.start()

    def has_power(self) -> bool | None:
        return self._strategy.has_power() if self._strategy.tells_power else None

    def reach_card(self) -> str:
        self.off()
        self._strategy.guard.check()
        flasher = self._strategy.flasher
        try:
            with lab_errors("reaching the card", Part.FLASHER):
                return flasher.find_card(self._strategy)
        except LabError as error:
            error.blame_lab(self._strategy.health.faults())
            raise
        finally:
            if flasher.starts_board:
                self._leave_shell()
                self.off()

    def _leave_shell(self) -> None:
        self._shell = None
        self._strategy.lose()

    def facts(self) -> BoardFacts:
        return board_facts(self._shell or self.boot(), self._strategy.board, self._strategy.card_device)

    def image(self) -> ImageFacts:
        return self._chosen.facts

    @property
    def _chosen(self) -> DiskImage:
        if self._strategy.card is None:
            raise ConfigError("no card image was chosen yet")
        return self._strategy.card
