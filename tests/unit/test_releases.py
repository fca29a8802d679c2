"""A run of each release reads as that release read it, to the digit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from released_runs import FIGURES, RELEASES, figures

from fsjoule.store.archive import ARCHIVE_SUFFIX, unpack_run


@pytest.mark.parametrize("release", sorted(RELEASES.glob("*/")), ids=lambda release: release.name)
def test_a_run_of_a_release_reads_as_it_did(release: Path, tmp_path: Path) -> None:
    [packed] = release.glob(f"*{ARCHIVE_SUFFIX}")
    name = packed.name.removesuffix(ARCHIVE_SUFFIX)
    unpack_run(packed, name, tmp_path)
    assert figures(tmp_path / name) == json.loads((release / FIGURES).read_text(encoding="utf-8"))
