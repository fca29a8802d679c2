"""What the detector has said is kept, and a cache that cannot be used is done without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.change_points import remembered

LEVELS = np.repeat([0.0, 1.0], 20) + np.random.default_rng(1).normal(0, 0.01, 40)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    return tmp_path / "change-points"


def found(finder: RupturesFinder | None = None) -> tuple[int, ...]:
    with remembered(finder or RupturesFinder()) as remembering:
        return remembering.find(LEVELS)


def kept(cache: Path) -> tuple[Path, dict[str, list[int]]]:
    (file,) = cache.iterdir()
    return file, json.loads(file.read_text())


def test_an_answer_is_kept_and_given_again(cache: Path) -> None:
    assert found() == RupturesFinder().find(LEVELS) == (20,)
    file, answers = kept(cache)
    assert list(answers.values()) == [[20]]
    file.write_text(json.dumps({key: [7] for key in answers}))
    assert found() == (7,)


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", "null", *(f'{{"KEY": {each}}}' for each in ('"x"', "[40]", "[5, 5]"))]
)
def test_what_cannot_be_an_answer_is_asked_again(cache: Path, damage: str) -> None:
    assert found() == (20,)
    file, answers = kept(cache)
    file.write_text(damage.replace("KEY", next(iter(answers))))
    assert found() == (20,)


def test_a_detector_of_other_parameters_has_answers_of_its_own(cache: Path) -> None:
    assert found() == (20,)
    assert found(RupturesFinder(penalty=1e9)) == ()
    assert len(list(cache.iterdir())) == 2


def test_without_a_cache_it_is_asked_each_time(cache: Path) -> None:
    cache.write_text("a file")
    assert found() == (20,)


def test_few_values_are_not_kept(cache: Path) -> None:
    with remembered(RupturesFinder()) as remembering:
        assert remembering.find(LEVELS[:5]) == ()
    assert list(cache.iterdir()) == []
