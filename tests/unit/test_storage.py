from __future__ import annotations

from collections.abc import Sequence

import pytest

from fsjoule.bench.scratch import attach, name_of
from fsjoule.errors import BoardError
from fsjoule.model import CARD, MIB, Storage
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell

STICK = Storage("sda", 512 * MIB)


def shell_of(answers: dict[str, tuple[int, str]]) -> FakeShell:
    """A board that answers by the last word of what it is asked."""

    def answer(argv: Sequence[str]) -> CommandResult:
        code, output = answers.get(argv[-1].rsplit("/", maxsplit=1)[-1], (1, ""))
        return CommandResult(tuple(argv), code, output)

    return FakeShell(answer)


def test_a_storage_device_says_what_it_is() -> None:
    shell = shell_of({"sda": (0, ""), "size": (0, "1048576\n"), "model": (0, "QEMU HARDDISK   \n")})
    assert attach(shell, "stick", STICK) == "stick QEMU HARDDISK"


def test_one_without_a_model_has_its_own_name() -> None:
    assert attach(shell_of({"sda": (0, ""), "size": (0, "1048576\n")}), "stick", STICK) == "stick"


def test_the_storage_device_of_a_series_is_known_by_what_it_said() -> None:
    shell = shell_of({"sda": (0, ""), "size": (0, "1048576\n"), "model": (0, "QEMU HARDDISK   \n")})
    assert name_of(attach(shell, "stick", STICK), ["nvme", "stick"]) == "stick"
    assert name_of("stick", ["nvme", "stick"]) == "stick"
    assert name_of("mmc1 QEMU! 1024 MiB", ["nvme", "stick"]) == CARD
    assert name_of("sticky QEMU", ["stick"]) == CARD


def test_one_that_does_not_appear_is_named() -> None:
    with pytest.raises(BoardError, match="the board has no stick: attach: there is no /dev/sda") as caught:
        attach(shell_of({"sda": (1, "attach: there is no /dev/sda\n")}), "stick", STICK)
    assert not caught.value.transient


def test_one_of_another_size_is_not_touched() -> None:
    with pytest.raises(BoardError, match=r"stick is sda with 8192 MiB, .* says 512 MiB: it was not touched"):
        attach(shell_of({"sda": (0, ""), "size": (0, f"{8192 * 2048}\n")}), "stick", STICK)
