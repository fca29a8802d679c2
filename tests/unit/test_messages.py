"""What fsjoule tells while it works: lines for whoever runs it, and nothing of it for other people's logs."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import fsjoule
from fsjoule.host.messages import lines_to, silent

_LOG = logging.getLogger("fsjoule.somewhere")


def test_a_line_is_what_was_logged_with_nothing_that_a_terminal_obeys(said: list[str]) -> None:
    _LOG.info("taking %s", "100 % [red]\x1b[2J")
    _LOG.info("100 %s {}")
    _LOG.warning("%s is silent", "the meter")
    _LOG.debug("for nobody")
    assert said == ["taking 100 % [red]\N{REPLACEMENT CHARACTER}[2J", "100 %s {}", "warning: the meter is silent"]


def test_a_silent_body_shows_nothing_but_what_is_not_silent_within(said: list[str]) -> None:
    with silent():
        _LOG.warning("hidden")
        with silent(False):
            _LOG.info("shown")
    _LOG.info("again")
    assert said == ["shown", "again"]


def test_other_peoples_logs_get_the_warnings_that_they_got_and_no_steps(caplog: pytest.LogCaptureFixture) -> None:
    logger, lines = logging.getLogger("fsjoule"), list[str]()
    before = (logger.handlers[:], logger.level, logger.propagate)
    caplog.set_level(logging.DEBUG)
    with lines_to(lines.append):
        _LOG.info("a step")
        _LOG.warning("no meter")
    assert (logger.handlers[:], logger.level, logger.propagate) == before
    assert lines == ["a step", "warning: no meter"]
    assert caplog.messages == ["no meter"]


def test_the_inner_one_of_two_front_ends_shows_the_lines(said: list[str]) -> None:
    lines: list[str] = []
    with lines_to(lines.append):
        _LOG.info("inside")
    _LOG.info("outside")
    assert (lines, said) == (["inside"], ["outside"])


def test_a_reader_that_is_gone_ends_whoever_logs() -> None:
    def closed(_line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), lines_to(closed):
        _LOG.info("a step")


def test_no_function_is_handed_one_that_says_something() -> None:
    for file in Path(fsjoule.__file__).parent.rglob("*.py"):
        names = {each.arg for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.arg)}
        assert "say" not in names, f"{file}: log it (fsjoule.host.messages)"
