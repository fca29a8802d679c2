"""The model of a card's flash memory, against the closed form of its write amplification and against simple counts."""

from __future__ import annotations

import math
import random

import pytest

from fsjoule.model import MIB
from fsjoule.virtual.disks.flash_card import FlashCard, FlashCounters, FlashGeometry

PAGE = 4096


def closed_form(ratio: float) -> float:
    """Write amplification of uniform random writes, with `ratio` of physical to logical pages (Desnoyers, SYSTOR 2012).

    ratio / (ratio + W(-ratio * exp(-ratio))), with W by Newton's method.
    """
    argument, w = -ratio * math.exp(-ratio), -0.5
    for _ in range(100):
        w -= (w * math.exp(w) - argument) / (math.exp(w) * (w + 1))
    return ratio / (ratio + w)


def filled(card: FlashCard) -> int:
    pages = card.size_bytes // PAGE
    for page in range(pages):
        card.write(page * PAGE, PAGE)
    return pages


@pytest.mark.parametrize("spare", [0.1, 0.2, 0.3])
def test_random_writes_amplify_as_the_closed_form_says(spare: float) -> None:
    """Between those of all blocks and of all but the two that are always free."""
    card = FlashCard(64 * 150 * PAGE, FlashGeometry(page_bytes=PAGE, block_pages=64, spare=spare))
    pages, chance = filled(card), random.Random(1)
    for steady in (False, True):
        card.counters = FlashCounters()
        for _ in range((2 if steady else 3) * pages):
            card.write(chance.randrange(pages) * PAGE, PAGE)
    ratios = [(card.blocks - reserved) * 64 / pages for reserved in (0, 2)]
    at_least, at_most = (closed_form(ratio) for ratio in ratios)
    assert 0.97 * at_least < card.counters.write_amplification < at_most


def test_writes_in_order_are_not_amplified() -> None:
    card = FlashCard(8 * MIB, FlashGeometry(page_bytes=PAGE, block_pages=64))
    for _ in range(4):
        filled(card)
    assert card.counters.write_amplification == 1.0
    assert card.counters.copied_bytes == 0
    assert 0 < card.wear < 0.01


def test_erases_spread_over_all_blocks() -> None:
    card = FlashCard(2 * MIB, FlashGeometry(page_bytes=PAGE, block_pages=16, spare=0.2))
    for _ in range(20):
        filled(card)
    assert card.erases.max() - card.erases.min() <= 2


def test_parts_of_a_page_cost_whole_pages() -> None:
    card = FlashCard(MIB, FlashGeometry(page_bytes=16384))
    first_us = card.write(0, 4096)
    assert card.write(4096, 4096) == 0  # the same page goes on
    card.flush()
    assert card.write(8192, 4096) == first_us + card.geometry.read_us
    assert card.counters.flash_written_bytes == 2 * 16384
    assert card.counters.host_written_bytes == 3 * 4096


def test_a_cache_is_fast_until_it_is_full() -> None:
    card = FlashCard(8 * MIB, FlashGeometry(page_bytes=PAGE, block_pages=64, cache_bytes=MIB))
    inside = [card.write(page * PAGE, PAGE) for page in range(200)]
    assert set(inside) == {card.geometry.cache_program_us}
    beyond = [card.write(page * PAGE, PAGE) for page in range(300, 1500)]
    assert sum(beyond) / len(beyond) > card.geometry.cache_program_us + card.geometry.program_us
    assert card.counters.write_amplification < 2.0


def test_what_is_overwritten_in_the_cache_is_not_folded() -> None:
    card = FlashCard(8 * MIB, FlashGeometry(page_bytes=PAGE, block_pages=64, cache_bytes=MIB))
    for _ in range(1000):
        card.write(0, PAGE)
        card.flush()
    assert card.counters.copied_bytes <= 100 * PAGE


def test_discarded_pages_are_not_copied() -> None:
    card = FlashCard(2 * MIB, FlashGeometry(page_bytes=PAGE, block_pages=16, spare=0.1))
    filled(card)
    card.discard(0, MIB)
    card.counters = FlashCounters()
    chance = random.Random(1)
    for _ in range(2000):
        card.write(MIB + chance.randrange(256) * PAGE, PAGE)
    assert card.counters.write_amplification < 1.2
    assert card.read(0, MIB) == 0


def test_a_range_beyond_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="the card has"):
        FlashCard(MIB).write(MIB, 1)
