"""A browser for each module; a test leaves no error of a script in it, and no breach of a page's policy."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from browser import Browser, browser


@pytest.fixture(scope="module", name="one")
def _one() -> Generator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def opened(one: Browser) -> Generator[Browser]:
    one.errors()
    yield one
    assert one.errors() == []
