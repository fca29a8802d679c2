"""How a place is chosen and awaited, as a user writes it."""

from __future__ import annotations

import pytest

from fsjoule.errors import ConfigError
from fsjoule.lab import PlaceRequest, place_request


def test_tags_a_limit_and_a_priority() -> None:
    assert place_request(None, None, None) == PlaceRequest()
    assert not place_request(None, "0s", None).reserves
    wanted = place_request("soc=imx6ul, sd=fast", "1.5h", 10)
    assert wanted == PlaceRequest((("soc", "imx6ul"), ("sd", "fast")), 5400.0, 10.0)
    assert str(wanted) == "a place with soc=imx6ul, sd=fast"
    assert [place_request(None, text, None).wait_s for text in ("90s", "30m", "2h")] == [90.0, 1800.0, 7200.0]
    assert wanted.named("evk-1").tags[-1] == ("name", "evk-1")


@pytest.mark.parametrize(
    ("tags", "wait", "priority", "said"),
    [
        ("", None, None, "--place-tag names no tag"),
        ("soc", None, None, "'soc' is not a tag"),
        ("soc=", None, None, "'soc=' is not a tag"),
        ("Soc=a", None, None, "'Soc=a' is not a tag"),
        ("soc=a,soc=b", None, None, "'soc=b' is not a tag"),
        (None, "30", None, "--wait 30: it is a number with s, m or h"),
        (None, "-1m", None, "--wait -1m"),
        (None, None, 3, "--priority orders those who wait"),
        (None, "1m", float("nan"), "--priority nan"),
        (None, "1m", float("inf"), "--priority inf"),
    ],
)
def test_wrong_input_is_named(tags: str | None, wait: str | None, priority: float | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        place_request(tags, wait, priority)
    assert caught.value.hint
