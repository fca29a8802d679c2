"""The board's card, as the board's Linux shows it: identity, size, wear, and the kernel's complaints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.bench.kernel_log import Message, doubtful, messages
from fsjoule.errors import LabError
from fsjoule.model import MIB
from fsjoule.ports import Shell

CARD: Final = "card"
# Of an SD card, an eMMC (with its registers of wear), or another disk (model). Documentation/driver-api/mmc of Linux.
_OF_DEVICE: Final = (
    "type",
    "name",
    "model",
    "manfid",
    "oemid",
    "date",
    "cid",
    "life_time",
    "pre_eol_info",
)
_SECTOR_BYTES: Final = 512
# JEDEC eMMC 5.1, 7.4.38 and 7.4.39: life_time counts tenths of the life that the maker expects, and 0x0B is beyond it.
_WORN_OUT: Final = 0x0B
_WORN: Final = 0x09
_RESERVE_WARNING: Final = 0x02  # 80 % of the reserved blocks are in use
_RESERVE_URGENT: Final = 0x03
_REPLACE: Final = "replace the card; what it measures changes with its wear"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Registers of a card by their names in sysfs, its size, and what the kernel reported."""

    device: str
    registers: Mapping[str, str]
    size_bytes: int
    messages: Sequence[Message] = ()


def check_card(shell: Shell, device: str, least_bytes: int) -> Check:
    """Read the card `device` (mmcblk1) of a booted board. `least_bytes` is the size of its images; 0 if unknown."""
    return judge_card(card_facts(shell, device), least_bytes)


def card_facts(shell: Shell, device: str) -> CardFacts:
    """Raises LabError if the board does not answer."""
    block = f"/sys/class/block/{device}"
    paths = [f"{block}/size", *(f"{block}/device/{name}" for name in _OF_DEVICE)]
    said = shell.run(["grep", "-sH", ".", *paths]).stdout  # of what there is
    registers: dict[str, str] = {}
    for line in said.splitlines():
        path, _, value = line.strip().partition(":")
        if path in paths:
            registers[path.rpartition("/")[2]] = value.strip()
    sectors = registers.pop("size", "0")
    log = shell.run(["dmesg"]).stdout
    try:
        size_bytes = int(sectors) * _SECTOR_BYTES
    except ValueError:
        raise LabError(f"the size of {device} cannot be read: {sectors!r}", transient=True) from None
    return CardFacts(device, registers, size_bytes, list(messages(log)))


def judge_card(facts: CardFacts, least_bytes: int) -> Check:
    if not facts.size_bytes:
        what = f"the board has no storage device {facts.device}"
        return judged(
            CARD, "", [Complaint(Health.BROKEN, what, "card_device in the environment file; is the card plugged in?")]
        )
    complaints = [
        Complaint(Health.DOUBTFUL, f"the kernel reported: {each.line}", each.kind.part)
        for each in doubtful(facts.messages)
    ]
    if facts.size_bytes < least_bytes:
        what = f"it is smaller than the board's card images ({least_bytes // MIB} MiB)"
        complaints.append(Complaint(Health.BROKEN, what, "another card, or a smaller size_mib in the recipe"))
    wear, worn = _wear(facts.registers)
    return judged(CARD, f"{_identity(facts)}; {wear}", [*complaints, *worn])


def _identity(facts: CardFacts) -> str:
    read = facts.registers
    kind = " ".join(filter(None, (read.get("name") or read.get("model"), read.get("type"))))
    maker = ", ".join(f"{name} {read[name]}" for name in ("manfid", "oemid", "date", "cid") if name in read)
    size = f"{facts.device}: {facts.size_bytes // MIB} MiB"
    return "; ".join(filter(None, (f"{size}, {kind}" if kind else size, maker)))


def _wear(registers: Mapping[str, str]) -> tuple[str, list[Complaint]]:
    """What is known of the wear, in words, and what is to be said against it."""
    lives = _numbers(registers.get("life_time", ""))
    reserve = max(_numbers(registers.get("pre_eol_info", "")), default=0)
    if not any(lives) and not reserve:
        return "it tells no wear", []
    complaints: list[Complaint] = []
    worst, said = max(lives, default=0), list[str]()
    if worst:
        said.append("its life is used up" if worst >= _WORN_OUT else f"up to {worst * 10} % of its life is used")
    if reserve:
        words = {1: "normal", _RESERVE_WARNING: "80 % used", _RESERVE_URGENT: "urgent"}
        said.append(f"reserved blocks {words.get(reserve, f'{reserve:#x}')}")
    if worst >= _WORN_OUT or reserve == _RESERVE_URGENT:
        complaints.append(Complaint(Health.BROKEN, "it is worn out", _REPLACE))
    elif worst >= _WORN or reserve == _RESERVE_WARNING:
        complaints.append(Complaint(Health.DOUBTFUL, "it is worn", _REPLACE))
    return ", ".join(said), complaints


def _numbers(text: str) -> list[int]:
    try:
        return [int(word, 16) for word in text.split()]
    except ValueError:
        return []
