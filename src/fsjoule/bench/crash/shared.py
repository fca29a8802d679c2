"""What is known of the states of one log, and which board checks which: one, or several that record the same log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fsjoule.errors import LabError
from fsjoule.model import CrashWorkload, Planned
from fsjoule.ports import ResultStore

_log: Final = logging.getLogger(__name__)

_FORM: Final = "2"  # of a fate's words


class OtherLogError(LabError):
    """Two boards of one run have recorded different writes, though the seed is the same."""

    ends_run = True


@dataclass(frozen=True, slots=True)
class Claim:
    """A board asks for another of the `batches` of an entry's states, and tells the fates that it knows, by state.

    `log` is the digest of what it has recorded.
    """

    entry: int
    log: str
    batches: int
    known: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Share:
    """The answer: the number of the batch to check, None if all are given, and the fates that are known, by state."""

    batch: int | None
    known: Mapping[str, str]


def shares_states(entry: Planned) -> bool:
    """Whether several boards in guest time can check an entry together: each records the same log. Not an update's."""
    return isinstance(entry.workload, CrashWorkload) and not entry.workload.confirm


@dataclass
class SharedStates:
    """The states of one entry. The store keeps what is known until `end`, so that a run that ended goes on with it.

    Batches are given once, in their order: a board whose batch is never told leaves it to the one that measures.
    """

    store: ResultStore
    entry: Planned
    log: str = ""
    known: dict[str, str] = field(default_factory=dict[str, str])
    given: int = 0
    ended: bool = False

    def claim(self, claim: Claim) -> Share:
        """Take over what a board knows. Raises OtherLogError, StorageError."""
        if not self.log:
            self._recall(claim.log)
        if claim.log != self.log:
            raise OtherLogError(
                f"{self.entry.slug}: one board recorded log {claim.log}, another one {self.log}: their states are not "
                "the same, and nothing of them was put together",
                hint="boards in guest time record the same with one seed, kernel and program: does the program do "
                "what depends on the lab? Without --boards one board checks all states",
            )
        if not self.ended and claim.known.items() - self.known.items():
            self.known |= claim.known
            self._keep()
        batch = self.given if self.given < claim.batches else None
        self.given += batch is not None
        return Share(batch, dict(self.known))

    def end(self) -> None:
        """The entry is measured."""
        self.ended = True
        self.store.take(self._name)

    @property
    def _name(self) -> str:
        return f"states-{self.entry.number}.txt"

    def _keep(self) -> None:
        lines = (f"{self.log} {_FORM}", *(f"{name} {fate}" for name, fate in self.known.items()))
        self.store.keep(self._name, "".join(f"{line}\n" for line in lines).encode())

    def _recall(self, log: str) -> None:
        """Take what was known of this log before the run ended."""
        self.log = log
        digest, *lines = (self.store.take(self._name) or b"").decode().splitlines() or [""]
        if digest == f"{log} {_FORM}":
            self.known |= {name: fate for name, _, fate in (line.partition(" ") for line in lines)}
            self._keep()
            _log.info("%s: %d states were checked before", self.entry.slug, len(lines))
        elif digest:
            _log.info(
                "%s: the %d states checked before are of another log, or of an older fsjoule",
                self.entry.slug,
                len(lines),
            )
