"""Wear in advice over several kinds of storage: what flash erases is no write to a card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsjoule.suites.profile import profile_of
from fsjoule.verdicts.advice.advise import Axis, advise, parse_weights
from fsjoule.verdicts.advice.evidence import AdviceEvidence, FilesystemEvidence, PartFigures
from fsjoule.verdicts.advice.parts import parts_of

NAME, LOGGER = profile_of("logger")


def worn(label: str, written_mib: float, flash_mib: float | None = None) -> FilesystemEvidence:
    row = PartFigures(joules=1.0, uncertainty_j=0.0, seconds=1.0, written_mib=written_mib, p99_s=0.01)
    boots = {("run", "6.1", i): row._replace(written_mib=written_mib * (1 + i / 1000)) for i in range(6)}
    return FilesystemEvidence(label, label, {part.slug: boots for part in parts_of(LOGGER)}, flash_mib=flash_mib)


def evidence(*filesystems: FilesystemEvidence) -> AdviceEvidence:
    return AdviceEvidence("board", "card,nand", "6.1", True, filesystems, (1.0,), 0.0, {"run": Path("run")}, "", 0, {})


BOTH = evidence(worn("ext4", 1.0), worn("ubifs", 2.0, flash_mib=128.0))


def test_a_card_of_unknown_endurance_is_not_compared_with_flash() -> None:
    advice = advise(BOTH, NAME, replace(LOGGER, card=None), weights=parse_weights("wear=1"))
    assert not [one for one in advice.relations if one.axis is Axis.WEAR]
    assert [score.label for score in advice.scores] == ["ubifs"]


def test_scores_weigh_shares_of_what_media_endure() -> None:
    assert LOGGER.card is not None
    advice = advise(BOTH, NAME, LOGGER, weights=parse_weights("wear=1"))
    shares = {one.label: one.worn.value for one in advice.figures if one.worn}
    lowest = min(shares, key=shares.__getitem__)
    assert advice.scores[0].label == lowest
    other = next(score for score in advice.scores if score.label == lowest)
    assert other.value.value == pytest.approx(shares[lowest] / max(shares.values()))
