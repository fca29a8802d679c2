"""Sides whose runs the index knows by their address in an object store that cannot be reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import in_guest_time, write_kernels

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Side, Where
from fsjoule.runs.explain import explain_compared
from fsjoule.store import sides
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.run_folders import find_runs
from fsjoule.store.sides import Sources
from fsjoule.verdicts.compare import compare_sides


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of a run that was imported from an object store; there are no keys for it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    made = write_kernels(tmp_path / "results", speeds={"6.1": 1.0, "6.12": 0.5}, boots=1, change=in_guest_time)
    folders, _ = find_runs([made])
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        import_runs(index, folders, known_as={each: f"s3://lab/boards/{each.name}" for each in folders})
    return tmp_path / "index.sqlite"


def _sides(sources: Sources) -> tuple[Side, Side]:
    one, other = (sources.side(name, Where(), tuple(Metric)) for name in ("6.1", "6.12"))
    return one, other


def test_runs_that_cannot_be_fetched_are_compared_by_the_index_alone(stored: Path) -> None:
    with Sources(str(stored)) as sources:
        one, other = _sides(sources)
    assert one.points
    assert not one.guest_time
    compared = compare_sides(replace(one, guest_time=True), replace(other, guest_time=True), None)
    assert any(finding.far for finding in compared.findings)
    assert explain_compared(compared, fetches=False) == ()
    with pytest.raises(ConfigError, match="no credentials"):  # a warning of `fsjoule compare --explain`
        explain_compared(compared)


def test_an_index_that_is_open_already_fetches_nothing(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []
    monkeypatch.setattr(sides, "at_hand", fetched.append)
    with open_index(stored) as index, Sources(index) as sources:
        one, _ = _sides(sources)
    assert one.points
    assert fetched == []
