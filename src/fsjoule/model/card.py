"""A card as data: times and energies of its requests, for a board whose emulated card takes no time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardTimes:
    """Times of a request, of each MiB in it, of a flush of the card's cache, and of an erasure of a block of raw flash.

    A request of raw flash loads or programs a page.
    """

    read_request_us: float
    read_us_per_mib: float
    write_request_us: float
    write_us_per_mib: float
    flush_us: float = 0.0
    erase_us: float = 0.0


@dataclass(frozen=True, slots=True)
class CardEnergies:
    """The energies for the same, on top of a board that waits for the card."""

    read_request_uj: float
    read_uj_per_mib: float
    write_request_uj: float
    write_uj_per_mib: float
    flush_uj: float = 0.0
    erase_uj: float = 0.0


@dataclass(frozen=True, slots=True)
class CardModel:
    """A card. The emulated board's meter sees only the bytes' energy, not the energy of requests and flushes."""

    name: str
    time: CardTimes
    energy: CardEnergies


@dataclass(frozen=True, slots=True)
class Projection:
    """Figures of a measurement with the time and energy of a card added: projected, not measured.

    `card_*` is the card alone. `both_*` is the measured kernel path plus the card, without any overlap; while the card
    works, the board draws its idle power. Throughput and energy are per MiB that the workload moved, None if it moves
    nothing; energies are None without a meter.
    """

    card: str
    card_s: float
    card_mj: float
    card_mib_per_s: float | None
    card_mj_per_mib: float | None
    both_s: float
    both_mj: float | None
    both_mib_per_s: float | None
    both_mj_per_mib: float | None
