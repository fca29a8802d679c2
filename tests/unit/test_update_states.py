"""The states of an update: what a card holds after which writes, and what was promised then."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.bench.crash.update import Partition, RecordedUpdate, UpdateWork
from fsjoule.errors import ConfigError, StorageError
from fsjoule.model import MIB, CrashWorkload, Planned, Provision
from fsjoule.model.card_writes import CardWrite, read_card_writes
from fsjoule.model.workload import OwnCommand
from fsjoule.suites.suite_file import read_suite

OLD, SCRATCH, NEW = 2, 3, 4
PARTITIONS = {number: Partition((number - 1) * MIB, MIB) for number in (OLD, SCRATCH, NEW)}
VARIABLES = MIB // 2


def write(offset: int, content: int) -> CardWrite:
    return CardWrite(offset, bytes([content]) * 512)


def slot(count: int) -> list[CardWrite]:
    return [write(3 * MIB + 512 * i, 1 + i) for i in range(count)]


def update(writes: list[CardWrite], installed: int, restarted: int, confirmed: int) -> RecordedUpdate:
    return RecordedUpdate(tuple(writes), installed, restarted, confirmed, PARTITIONS, OLD, NEW, SCRATCH)


# Five sectors of the new slot, two of the variables (of which the second changes nothing), and after the power cycle
# one by the boot loader, one of the filesystem under test, and one that confirms.
WRITES = [
    *slot(5),
    write(VARIABLES, 7),
    write(VARIABLES, 7),
    write(VARIABLES, 8),
    write(2 * MIB, 9),
    write(VARIABLES, 10),
]
UPDATE = update(WRITES, installed=7, restarted=7, confirmed=10)


def work() -> UpdateWork:
    workload = CrashWorkload(OwnCommand("rauc", ("./update.sh",)), ("./confirm.sh",))
    return UpdateWork(Planned(1, 1, "6.1", "ext4", workload, "update-states", Provision.SCRATCH), workload, {}, 7)


def test_of_a_slot_that_is_not_started_few_states_matter_and_of_all_else_each_write() -> None:
    ends = [(each.end, each.alone) for each in UPDATE.groups()]
    assert ends == [(1, False), (2, False), (5, False), (6, True), (7, True), (8, True), (9, False), (10, True)]


def test_a_slot_that_is_written_after_the_variables_is_booted_in_each_of_its_parts() -> None:
    late = update([*slot(2), write(VARIABLES, 7), *slot(4)[2:]], installed=5, restarted=5, confirmed=5)
    assert [each.end for each in late.groups()] == [1, 2, 3, 4, 5]


def test_each_different_card_is_a_state_once_with_the_most_that_was_promised() -> None:
    recording = work().states_of(UPDATE)
    assert recording.coverage.states == len(WRITES) + 1
    promises = [each.promises for each in recording.coverage.different]
    # Nothing, three parts of the slot, the variables, which are rewritten and then promised, and three more.
    assert promises == [0, 0, 0, 0, 1, 1, 1, 2]


def test_named_states_alone_are_booted_in_their_order() -> None:
    every = [each.name for each in work().states_of(UPDATE).coverage.different]
    one = work()
    one.workload = CrashWorkload(one.workload.command, ("./confirm.sh",), only=(every[5], every[2]))
    assert [each.name for each in one.states_of(UPDATE).coverage.different] == [every[2], every[5]]


def test_a_partitions_digest_is_that_of_its_bytes_alone(tmp_path: Path) -> None:
    card = tmp_path / "card.img"
    card.write_bytes(bytes(4 * MIB))
    before = PARTITIONS[NEW].digest(card)
    with card.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(b"x")
    assert PARTITIONS[NEW].digest(card) == before != PARTITIONS[SCRATCH].digest(card)


def test_recorded_writes_are_read_between_two_sizes_of_their_file(tmp_path: Path) -> None:
    record = tmp_path / "card.writes"
    parts = [bytes(each) for each in WRITES]
    record.write_bytes(b"".join(parts))
    assert list(read_card_writes(record)) == WRITES
    assert list(read_card_writes(record, len(parts[0]), len(parts[0] + parts[1]))) == WRITES[1:2]
    record.write_bytes(b"".join(parts)[:-1])
    with pytest.raises(StorageError, match="cut short"):
        list(read_card_writes(record))
    with pytest.raises(StorageError, match="cannot be read"):
        list(read_card_writes(tmp_path / "none"))


def test_confirm_makes_crash_states_those_of_an_update(tmp_path: Path) -> None:
    table = (
        '[suite]\ntitle = "t"\n\n[[suite.workload]]\n{operation}'
        'command = ["./a.sh"]\nfiles = ["a.sh"]\nconfirm = ["./a.sh"]\n'
    )
    (tmp_path / "a.sh").write_text("#!/bin/sh\n")
    file = tmp_path / "mine.toml"
    file.write_text(table.format(operation='operation = "crash-states"\n'))
    [workload] = read_suite(file).workloads
    assert isinstance(workload, CrashWorkload)
    assert workload.confirm == ("./a.sh",)
    assert workload.identity != CrashWorkload(workload.command).identity
    file.write_text(table.format(operation=""))
    with pytest.raises(ConfigError, match="confirm is for crash states of an update"):
        read_suite(file)
