"""Projects a measurement onto another card, from the board's counters of its card. Pure."""

from __future__ import annotations

from fsjoule.model import MIB, CardModel, DeviceCounters, Energy, Projection


def project(
    card: CardModel, counters: DeviceCounters, *, moved_bytes: int, duration_s: float, energy: Energy | None
) -> Projection:
    """Add the time and energy of `card` to a measurement of `duration_s` on a board whose own card takes no time.

    `counters` are the window's, `moved_bytes` the workload's. Discards cost nothing.
    """
    read_mib, written_mib = counters.read_bytes / MIB, counters.written_bytes / MIB
    time, energies = card.time, card.energy
    card_s = 1e-6 * (
        counters.reads * time.read_request_us
        + read_mib * time.read_us_per_mib
        + counters.writes * time.write_request_us
        + written_mib * time.write_us_per_mib
        + counters.flushes * time.flush_us
    )
    metered_mj = 1e-3 * (read_mib * energies.read_uj_per_mib + written_mib * energies.write_uj_per_mib)
    unmetered_mj = 1e-3 * (
        counters.reads * energies.read_request_uj
        + counters.writes * energies.write_request_uj
        + counters.flushes * energies.flush_uj
    )
    both_s = duration_s + card_s
    both_mj = None
    if energy is not None:
        both_mj = energy.gross_mj.value + 1e3 * energy.idle_power_w.value * card_s + unmetered_mj
    mib = moved_bytes / MIB
    return Projection(
        card=card.name,
        card_s=card_s,
        card_mj=metered_mj + unmetered_mj,
        card_mib_per_s=mib / card_s if mib and card_s else None,
        card_mj_per_mib=(metered_mj + unmetered_mj) / mib if mib else None,
        both_s=both_s,
        both_mj=both_mj,
        both_mib_per_s=mib / both_s if mib and both_s else None,
        both_mj_per_mib=both_mj / mib if mib and both_mj is not None else None,
    )
