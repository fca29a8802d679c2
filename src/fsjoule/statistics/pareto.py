"""Which of several choices no other one beats, where less is better in every respect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def beaten_by(choices: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Each choice with one that beats it: nowhere worse, somewhere better. Empty for those that none beats: the front.

    All have the same number of figures. Of several that beat a choice it is the first that none beats. Equal choices
    do not beat each other.
    """

    def beats(one: str, other: str) -> bool:
        pairs = list(zip(choices[one], choices[other], strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    front = [name for name in choices if not any(beats(other, name) for other in choices)]
    return {name: next((each for each in front if beats(each, name)), "") for name in choices}
