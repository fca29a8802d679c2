"""What a run says of what it was made from."""

from __future__ import annotations

import pytest

from fsjoule.runs.open_run import revision


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        ({"CI_COMMIT_REF_NAME": "main", "CI_COMMIT_SHA": "c0ffee"}, {"branch": "main", "commit": "c0ffee"}),
        ({"CI_COMMIT_REF_NAME": "main", "FSJOULE_BRANCH": "topic"}, {"branch": "topic"}),
        ({"CI_COMMIT_REF_NAME": "main", "FSJOULE_BRANCH": ""}, {"branch": "main"}),
    ],
)
def test_branch_and_commit_are_the_user_s_or_the_ci_s(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: dict[str, str]
) -> None:
    for name in ("FSJOULE_BRANCH", "FSJOULE_COMMIT", "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert revision() == expected
