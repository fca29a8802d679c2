"""What a run folder is to the run in an object store, and what a manifest may say."""

from __future__ import annotations

import hashlib

import pytest

from fsjoule.errors import ResultError
from fsjoule.store.objects.runs import (
    FolderState,
    StoredFile,
    StoredRun,
    decode_manifest,
    encode_manifest,
    folder_state,
)


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def stored(*, complete: bool, **files: str) -> StoredRun:
    return StoredRun(
        complete, {path: StoredFile(digest(text), len(text), "0" * 64) for path, text in named(files).items()}
    )


def named(files: dict[str, str]) -> dict[str, str]:
    """Short names: `run` and `page` stand beside run.json, `m1` is a measurement."""
    paths = {"run": "run.json", "page": "report.html", "gate": "gate.json"}
    return {paths.get(name, f"measurements/{name}/measurement.json"): text for name, text in files.items()}


@pytest.mark.parametrize(
    ("there", "here", "complete", "found"),
    [
        ({"run": "a", "m1": "x"}, {"run": "a", "m1": "x"}, (True, True), FolderState.SAME),
        ({"run": "a", "page": "old"}, {"run": "a", "page": "new"}, (True, True), FolderState.SAME),
        ({"run": "a"}, {"run": "a", "page": "new"}, (True, True), FolderState.SAME),
        ({"run": "a", "m1": "x"}, {"run": "b", "m1": "x", "m2": "y"}, (False, True), FolderState.NEWER),
        ({"run": "a", "m1": "x"}, {"run": "b", "m1": "x"}, (False, True), FolderState.NEWER),
        ({"run": "a", "m1": "x"}, {"run": "b", "m1": "x"}, (False, False), FolderState.NEWER),
        ({"run": "a", "m1": "x"}, {"run": "a", "m1": "x", "gate": "g"}, (True, True), FolderState.NEWER),
        ({"run": "b", "m1": "x"}, {"run": "a", "m1": "x"}, (True, False), FolderState.OLDER),
        ({"run": "b", "m1": "x", "m2": "y"}, {"run": "a", "m1": "x"}, (True, False), FolderState.OLDER),
        ({"run": "b", "m1": "x", "m2": "y"}, {"run": "a", "m1": "x"}, (False, False), FolderState.OLDER),
        ({"run": "a", "m1": "x"}, {"run": "b", "m1": "x"}, (True, True), FolderState.OTHER),
        ({"run": "a", "m1": "x"}, {"run": "a", "m1": "y"}, (False, False), FolderState.OTHER),
        ({"run": "a", "m1": "x"}, {"run": "b", "m2": "y"}, (False, False), FolderState.OTHER),
        ({"run": "b", "m1": "x"}, {"run": "a", "m1": "x", "m2": "y"}, (True, False), FolderState.OTHER),
    ],
)
def test_a_folder_is_newer_older_or_another(
    there: dict[str, str], here: dict[str, str], complete: tuple[bool, bool], found: FolderState
) -> None:
    digests = {path: digest(text) for path, text in named(here).items()}
    assert folder_state(stored(complete=complete[0], **there), digests, complete=complete[1]) is found


def test_a_manifest_comes_back() -> None:
    run = stored(complete=True, run="a", m1="x")
    assert decode_manifest(encode_manifest(run), "s3://lab/runs/x.json") == run
    assert run.objects() == {"0" * 64: 1}
    assert run.documents() == ["run.json", "measurements/m1/measurement.json"]


def test_a_manifest_without_a_run_is_refused_with_its_address() -> None:
    with pytest.raises(ResultError) as told:
        decode_manifest(encode_manifest(stored(complete=True, m1="x")), "s3://lab/runs/x.json")
    assert told.value.what.startswith("s3://lab/runs/x.json does not follow fsjoule.stored-run/1")
    assert "there is no run.json" in told.value.what
    assert "--again" in (told.value.hint or "")
