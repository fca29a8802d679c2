"""A line that its shell checks, on this computer's shells, each of its characters lost, doubled and flipped."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsjoule.lab.checked_line import TRAFFIC, CheckedLine, functions

SHELLS = ("dash", "busybox sh", "bash")


def evaluated(shell: str, folder: Path, lines: Sequence[str]) -> str:
    """What a shell prints that evaluates lines one by one, as a board in guest time does."""
    typed = "\n".join([functions(f"{folder}/output"), *lines]) + "\n"
    each = 'while IFS= read -r line; do command eval "$line"; done'
    done = subprocess.run(
        [*shell.split(), "-c", each], input=typed.encode(), capture_output=True, timeout=60, cwd=folder, check=False
    )
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_run_until_one_fails_and_answer_whole(shell: str, tmp_path: Path) -> None:
    line = CheckedLine.of(["printf 'it is \\140`\\n'", "true", "sh -c 'echo \"$0\" ä; exit 3' x", "touch never"])
    said = evaluated(shell, tmp_path, [line.text]).encode()
    end = re.search(line.answered.encode(), said)
    assert end
    answer = line.read(said[: end.start()], end)
    assert answer is not None
    assert (answer.count, answer.exit_code, answer.outputs) == (3, 3, ("it is ``\n", "", "x ä\n"))
    assert not (tmp_path / "never").exists()
    assert line.read(said[: end.start()].replace(b"it", b"is"), end) is None
    assert TRAFFIC.sub("", said.decode()).split() == ["it", "is", "``", f"<{line.number}", f"<{line.number}", "x", "ä"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_damaged_line_runs_nothing_else_and_the_same_line_once(shell: str, tmp_path: Path) -> None:
    line = CheckedLine.of(["echo --size=33554432 ':; mkfs' >>ran"])
    damaged: list[str] = []
    for place, character in enumerate(line.text):
        before, after = line.text[:place], line.text[place + 1 :]
        flipped = [chr(ord(character) ^ 1 << bit) for bit in range(7)]
        damaged += [before + instead + after for instead in ("", character * 2, *flipped) if instead != "\n"]
    damaged += [line.text[:place] + line.text[place + 4 :] for place in range(len(line.text) - 4)] + ["fsj"]
    # Two spaces for one do no harm: that line runs, and as the same line only once.
    said = evaluated(shell, tmp_path, [*damaged, line.text, line.text, *damaged])
    assert said.count("<fsj?>") > len(damaged)
    assert len(re.findall(line.answered, said)) < len(damaged) / 10
    assert (tmp_path / "ran").read_text() == "--size=33554432 :; mkfs\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_an_older_line_out_of_the_history_does_not_run(shell: str, tmp_path: Path) -> None:
    old, new = CheckedLine.of(["echo old >>ran"]), CheckedLine.of(["echo new >>ran"])
    assert evaluated(shell, tmp_path, [old.text, new.text, old.text, new.text]).count("<fsj?>") == 1
    assert (tmp_path / "ran").read_text() == "old\nnew\n"
