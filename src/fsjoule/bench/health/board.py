"""The board: its power off, on and off again, its card by the flasher and by its own Linux, and the boot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.bench.kernel_log import Message, doubtful, messages
from fsjoule.errors import LabError, MeterError
from fsjoule.model import MIB
from fsjoule.model.emmc import EmmcState
from fsjoule.ports import Board, BoardParts, Clock, Meter, Shell

POWER: Final = "power"
_SETTLE_S: Final = 0.5  # the outlet's relay, and the rest in the board's capacitors
_RECORD_S: Final = 1.0
# The smallest boards draw some 0.3 W at rest, and an INA219 at 0.1 Ohm errs by 6 mW.
_LEAST_RISE_W: Final = 0.03
_MOST_LEFT: Final = 0.1
_OUTLET: Final = "the exporter's file names the outlet and its socket: is it this board's?"
_SWAP: Final = "exchange the two leads in the board's supply line"
_FED: Final = "pull the console's and the meter's cables one by one: a powered UART or USB line can feed a board"


FLASHER: Final = "flasher"
BOOT: Final = "boot"
_SLOW: Final = 0.7


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
_REPLACE: Final = "replace the card; what it measures changes with its wear"


@dataclass(frozen=True, slots=True)
class Moment:
    """What the outlet says (None: it cannot tell), and the mean power by the meter, in W (None: no meter saw it)."""

    outlet: bool | None
    watts: float | None


def check_power(board: Board, parts: BoardParts, meter: Meter | None, clock: Clock) -> Check:
    """Switch the board off, on and off. A meter that is silent is the meter's own check. Raises LabError."""
    board.off()
    clock.sleep(_SETTLE_S)
    before = _moment(parts, meter, clock)
    parts.power_on()
    clock.sleep(_SETTLE_S)
    on = _moment(parts, meter, clock)
    board.off()
    clock.sleep(_SETTLE_S)
    return judge_power(before, on, _moment(parts, meter, clock))


def _moment(parts: BoardParts, meter: Meter | None, clock: Clock) -> Moment:
    try:
        outlet = parts.has_power()
    except LabError:
        outlet = None  # many outlets switch and do not tell
    if meter is None:
        return Moment(outlet, None)
    try:
        meter.arm()
        clock.sleep(_RECORD_S)
        watts = meter.disarm().power_w
    except MeterError:
        return Moment(outlet, None)
    return Moment(outlet, float(watts.mean()) if len(watts) else None)


def judge_power(before: Moment, on: Moment, after: Moment) -> Check:
    outlet = (before.outlet, on.outlet, after.outlet)
    knows = None not in outlet
    if before.watts is None or on.watts is None or after.watts is None:
        if not knows:
            return Check(POWER, Health.NOT_HERE, "neither the outlet nor a meter tells; the boot shows it")
        return judged(POWER, f"the outlet says {_said(outlet)}; no meter saw it", _by_outlet(outlet))
    seen = f"off {before.watts:.3f} W, on {on.watts:.3f} W, off {after.watts:.3f} W"
    seen += f"; the outlet says {_said(outlet)}" if knows else "; the outlet does not tell"
    left_w = max(before.watts, after.watts)
    complaints = _by_outlet(outlet)
    if on.watts < -_LEAST_RISE_W:
        complaints.append(Complaint(Health.BROKEN, "the leads of the meter are swapped: its power is negative", _SWAP))
    elif on.watts - left_w < _LEAST_RISE_W:
        what = "the meter sees no current that comes and goes with the outlet"
        complaints.append(
            Complaint(Health.BROKEN, what, f"is the meter in this board's supply, and is that supply on? {_OUTLET}")
        )
    elif left_w > _MOST_LEFT * on.watts:
        complaints.append(
            Complaint(Health.DOUBTFUL, f"{left_w / on.watts:.0%} of the power stays when it is off", _FED)
        )
    return judged(POWER, seen, complaints)


def _by_outlet(outlet: tuple[bool | None, ...]) -> list[Complaint]:
    expected = (False, True, False)
    if all(each in {None, right} for each, right in zip(outlet, expected, strict=True)):
        return []
    return [Complaint(Health.BROKEN, f"the outlet was switched {_said(expected)} and does not follow", _OUTLET)]


def _said(outlet: tuple[bool | None, ...]) -> str:
    return ", ".join("nothing" if each is None else "on" if each else "off" for each in outlet)


def check_flasher(parts: BoardParts, write: Callable[[], None] | None, clock: Clock) -> Check:
    """Reach the card without writing to it; then `write` it, if the user asked for that. Raises LabError."""
    reached = parts.reach_card()
    if write is None:
        if not reached:
            return Check(FLASHER, Health.NOT_HERE, "this flasher cannot reach the card without writing to it")
        return judged(FLASHER, f"{reached}; nothing was written")
    begin_s = clock.now_s()
    write()
    took = f"the card was written in {clock.now_s() - begin_s:.0f} s"
    return judged(FLASHER, f"{reached}; {took}" if reached else took)


def check_boot(board: Board, parts: BoardParts, clock: Clock) -> tuple[Check, Shell]:
    """Boot what is on the card. Raises BoardError."""
    begin_s = clock.now_s()
    shell = board.boot()
    return judge_boot(clock.now_s() - begin_s, parts.boot_limit_s), shell


def judge_boot(took_s: float, limit_s: float) -> Check:
    complaints: list[Complaint] = []
    if took_s > _SLOW * limit_s:
        advice = (
            "raise boot_timeout of BoardStrategy, or find what delays the boot: a slow boot now and then exceeds it"
        )
        complaints.append(Complaint(Health.DOUBTFUL, f"it needs more than {_SLOW:.0%} of its limit", advice))
    return judged(BOOT, f"login after {took_s:.1f} s; the limit is {limit_s:.0f} s", complaints)


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
    read = facts.registers
    kind = " ".join(filter(None, (read.get("name") or read.get("model"), read.get("type"))))
    maker = ", ".join(f"{name} {read[name]}" for name in ("manfid", "oemid", "date", "cid") if name in read)
    size = f"{facts.device}: {facts.size_bytes // MIB} MiB"
    wear, worn = _wear(read)
    said = "; ".join(filter(None, (f"{size}, {kind}" if kind else size, maker, wear)))
    return judged(CARD, said, [*complaints, *worn])


def _wear(registers: Mapping[str, str]) -> tuple[str, list[Complaint]]:
    """What is known of the wear, in words, and what is to be said against it."""
    lives = _numbers(registers.get("life_time", ""))
    reserve = max(_numbers(registers.get("pre_eol_info", "")), default=0)
    state = EmmcState(0, life_a=max(lives, default=0), pre_eol=reserve)
    if state.worn_out:
        return state.wear, [Complaint(Health.BROKEN, "it is worn out", _REPLACE)]
    worn = [Complaint(Health.DOUBTFUL, "it is worn", _REPLACE)] if state.worn else []
    return state.wear or "it tells no wear", worn


def _numbers(text: str) -> list[int]:
    try:
        return [int(word, 16) for word in text.split()]
    except ValueError:
        return []
