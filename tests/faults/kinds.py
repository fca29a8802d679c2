"""The catalogue: what is injected, when, and what is expected of a bench then. To add a kind, add a row."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from faults import database, disks, users
from faults.act import CONSOLE_BRIDGE, METER_BRIDGE, QEMU, Act, signalled
from faults.scene import Bench, Scene
from faults.watch import Phase

_SIGNALS: Final = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
_ALL: Final = (Phase.SET_UP, Phase.FLASH, Phase.BOOT, Phase.PROVISIONING, Phase.MEASURING, Phase.STORING)
_WITH_PLACE: Final = _ALL[1:]
_POWERED: Final = _ALL[2:]
_AT_SHELL: Final = (Phase.PROVISIONING, Phase.MEASURING)
_BEFORE: Final = (Phase.BEFORE,)

_LAB: Final = frozenset({4})
_INPUT_OR_LAB: Final = frozenset({2, 4})
_STOPPED_WITHIN_S: Final = 180.0


class Lab(StrEnum):
    """Who brings the lab up: the bench for itself, somebody before it, or (by the seed) one of the two."""

    OWN = "own"
    STANDING = "standing"
    EITHER = "either"


def _nothing(_scene: Scene) -> str:
    return ""


def _no_act(_scene: Scene, _bench: Bench) -> str:
    return ""


def _started(scene: Scene) -> Bench:
    return scene.bench()


@dataclass(frozen=True)
class Kind:
    """A kind of fault: `prepare` is done before the bench is started, `act` at a random moment of one of the `phases`.

    `names` is what a line of the bench's output must match once the fault is told: what failed, and how. Progress does
    not count (`checks.told`). A fault that no bench can miss is told `always`. `codes` are the exit codes that say it.
    Exit code 0 is right whenever the run is complete and valid, and the only right one if the fault `passes`: then a
    second try makes it. A run that fails ends `within_s` of the fault.

    `hands_off`: afterwards the place, or the board, is not the bench's to free, or no bench is left to do it.
    """

    name: str
    names: str
    act: Act = _no_act
    phases: tuple[Phase, ...] = _ALL
    codes: frozenset[int] = _LAB
    passes: bool = False
    within_s: float = 60.0
    lab: Lab = Lab.OWN
    guest_time: bool = False
    always: bool = False
    hands_off: bool = False
    # The lab lacks something afterwards, and is brought up anew for the next bench if it is not the bench's own.
    service_dies: bool = False
    prepare: Callable[[Scene], str] = _nothing
    start: Callable[[Scene], Bench] = _started
    # What is to succeed afterwards, if not a bench.
    again: Callable[[Scene], Bench] | None = None


def _service(
    service: str,
    names: str,
    phases: tuple[Phase, ...] = _ALL,
    *,
    passes: bool = False,
    within_s: float = 60.0,
    lab: Lab = Lab.OWN,
) -> list[Kind]:
    """A process of the lab is killed, asked to end, or stands still."""
    return [
        Kind(
            f"{service}-{word}",
            names,
            signalled(service, sig),
            phases,
            passes=passes,
            within_s=within_s,
            # A lab that somebody else brings up is there before the bench: nothing of it is being set up.
            lab=lab if Phase.SET_UP not in phases else Lab.OWN,
            service_dies=service != QEMU,
        )
        for word, sig in _SIGNALS.items()
    ]


def _failed(service: str) -> str:
    """How a bench says that a service of the lab is dead or stands still, or has not come up."""
    how = r"died|ended|was killed by|was stopped|does not answer|is not ready after"
    return rf"(?<!of )the lab's {service} (?:\(process \d+\) )?(?:{how})"


_QEMU_FAILED: Final = r"QEMU \(process \d+\) (?:died|ended|was killed by|was ended by another program|was stopped)"
_BRIDGE_FAILED: Final = r"ser2net of the lab's \w+ \(process \d+\) (?:died|ended|was killed by|was stopped)"
# A meter whose way is cut is named as silent where nobody can see what has cut it.
_NO_METER: Final = r"(?:no|have no) energy: .*\bmeter\b|the meter (?:is silent|did not|was not)"
_LAB_ENDED: Final = r"the lab '\S+' (?:has ended|ended while it started): it(?:s {head}| was taken)|the lab is not up"

_SERVICES: Final = (
    # Off is a kill for the emulated board: the second try finds it as good as new.
    *_service(QEMU, _QEMU_FAILED, _POWERED, passes=True, lab=Lab.EITHER),
    *_service("board", _failed("board")),
    *_service("meter", _failed("meter")),
    *_service(CONSOLE_BRIDGE, rf"{_BRIDGE_FAILED}|the console's connection was lost", _POWERED, lab=Lab.EITHER),
    *_service(METER_BRIDGE, rf"{_BRIDGE_FAILED}|{_NO_METER}", _POWERED, lab=Lab.EITHER),
    *_service("exporter", _failed("exporter")),
    *_service("coordinator", _failed("coordinator")),
    *_service("sshd", _failed("sshd")),
    *_service("supervisor", rf"{_failed('supervisor')}|{_LAB_ENDED.format(head='supervisor')}"),
    *_service("guardian", rf"{_failed('guardian')}|{_LAB_ENDED.format(head='guardian')}"),
)

# What is typed is not on the console's log there, so that nobody sees from outside when a workload begins.
_IN_GUEST_TIME: Final = (Phase.BOOT, Phase.PROVISIONING, Phase.STORING)
_GUEST_TIME: Final = (
    Kind(
        "guest-time-qemu-kill",
        _QEMU_FAILED,
        signalled(QEMU, signal.SIGKILL),
        _IN_GUEST_TIME,
        passes=True,
        guest_time=True,
    ),
    Kind(
        "guest-time-board-kill",
        _failed("board"),
        signalled("board", signal.SIGKILL),
        _IN_GUEST_TIME,
        guest_time=True,
    ),
    Kind(
        "guest-time-meter-kill",
        _failed("meter"),
        signalled("meter", signal.SIGKILL),
        _IN_GUEST_TIME,
        guest_time=True,
    ),
)

_INTERRUPTED: Final = r"interrupted|Interrupted|KeyboardInterrupt|(?:Ctrl-C|SIG[A-Z]+): ending"
_ENDS: Final = (
    Kind("ctrl-c", _INTERRUPTED, users.ctrl_c(1), codes=frozenset({130}), lab=Lab.EITHER),
    Kind("ctrl-c-twice", _INTERRUPTED, users.ctrl_c(2), codes=frozenset({130}), lab=Lab.EITHER),
    Kind("ctrl-c-five-times", _INTERRUPTED, users.ctrl_c(5), codes=frozenset({130}), lab=Lab.EITHER),
    Kind("bench-term", _INTERRUPTED, users.bench_signalled(signal.SIGTERM), codes=frozenset({143}), lab=Lab.EITHER),
    Kind(
        "bench-hup",
        _INTERRUPTED,
        users.bench_signalled(signal.SIGHUP, group=True),
        codes=frozenset({129}),
        lab=Lab.EITHER,
    ),
    # Its lab ends with it.
    Kind("bench-kill", r"", users.bench_signalled(signal.SIGKILL), codes=frozenset({-9})),
    # The board stays on and the place held, until the next bench.
    Kind(
        "bench-kill-standing",
        r"",
        users.bench_signalled(signal.SIGKILL),
        _WITH_PLACE,
        frozenset({-9}),
        lab=Lab.STANDING,
        hands_off=True,
    ),
)

_NO_ROOM: Final = r"could not be (stored|written).*No space left|No space left"
_DISKS: Final = (
    Kind("results-full", _NO_ROOM, disks.fill_results, prepare=disks.own_disk_for_results, lab=Lab.EITHER),
    Kind(
        "results-read-only",
        r"Read-only file system",
        disks.results_read_only,
        prepare=disks.own_disk_for_results,
        lab=Lab.EITHER,
    ),
    Kind("cache-full", r"No space left", phases=_BEFORE, prepare=disks.cache_full),
    Kind(
        "cache-read-only",
        r"cache cannot be written",
        phases=_BEFORE,
        codes=_INPUT_OR_LAB,
        passes=True,
        prepare=disks.cache_read_only(with_card=True),
    ),
    Kind(
        "cache-read-only-no-card",
        r"[Rr]ead-only",
        phases=_BEFORE,
        codes=_INPUT_OR_LAB,
        prepare=disks.cache_read_only(with_card=False),
    ),
    *(
        Kind(
            f"cache-{word}",
            r"the cached card \S+ is damaged: .*building it again",
            phases=_BEFORE,
            passes=True,
            always=True,
            within_s=120.0,
            prepare=disks.damaged_cache(damage),
        )
        for word, damage in {
            "card-missing": disks.card_missing,
            "card-truncated": disks.card_truncated,
            "card-flipped": disks.card_flipped,
            "facts-garbled": disks.facts_garbled,
            "entry-garbled": disks.entry_garbled,
        }.items()
    ),
)

# It may notice before somebody else has it.
_TAKEN: Final = rf"{users.SOMEBODY} has it|the place '\S+' was taken away"
_ANOTHER_METER: Final = rf"this is not the meter of the run: .*{users.OTHER_METER}"
_HOLDERS: Final = (
    Kind(
        "place-taken",
        _TAKEN,
        users.place_kicked(taken=True),
        _WITH_PLACE,
        lab=Lab.STANDING,
        hands_off=True,
    ),
    Kind(
        "place-taken-board-dies",
        _TAKEN,
        users.place_kicked(taken=True, and_killed=True),
        _POWERED,
        lab=Lab.STANDING,
        hands_off=True,
    ),
    Kind(
        "place-released",
        r"the place '\S+' was taken away",
        users.place_kicked(taken=False),
        _WITH_PLACE,
        lab=Lab.STANDING,
        hands_off=True,
    ),
    Kind("second-bench", r"", users.second_bench(), _WITH_PLACE, passes=True, lab=Lab.EITHER),
    Kind(
        "second-bench-degraded",
        _failed("sshd"),
        users.second_bench(signalled("sshd", signal.SIGKILL)),
        _POWERED,
        within_s=240.0,
    ),
    # It may notice the end of the first before it hears the other.
    Kind("meter-swapped", rf"{_ANOTHER_METER}|{_failed('meter')}", users.meter_swapped, _POWERED),
    Kind(
        "meter-swapped-resume",
        _ANOTHER_METER,
        phases=_BEFORE,
        codes=_INPUT_OR_LAB,
        start=users.resumed_with_another_meter,
    ),
)

_BOARD: Final = (
    Kind(
        "panic",
        r"[Kk]ernel panic",
        users.typed("echo c > /proc/sysrq-trigger", "a kernel panic"),
        _AT_SHELL,
        passes=True,
        lab=Lab.EITHER,
    ),
    Kind(
        "guest-time-panic",
        r"[Kk]ernel panic",
        users.typed("echo c > /proc/sysrq-trigger", "a kernel panic"),
        (Phase.PROVISIONING,),
        passes=True,
        guest_time=True,
    ),
    Kind(
        "console-flooded",
        r"did not end within|the board does not answer|the console's connection was lost|no shell after|logged us out"
        r"|the console damaged (FILE on its way to the board|.* or its answer|the functions that check)",
        users.typed("(while :; do cat /proc/kallsyms; done) > /dev/console 2>&1 &", "the console is flooded"),
        _AT_SHELL,
        passes=True,
        within_s=_STOPPED_WITHIN_S,
        lab=Lab.EITHER,
    ),
    Kind(
        "card-writer-hangs",
        r"writing card.img took longer|of the lab's sshd \(process \d+\) was stopped",
        users.card_writer_hangs,
        (Phase.FLASH,),
        passes=True,
        within_s=120.0,
        lab=Lab.EITHER,
    ),
)

_TERMINAL: Final = frozenset({1, 2, 4})
_NO_OUTPUT: Final = "the output cannot be written: No space left"
_TERMINALS: Final = (
    Kind("stdout-full", _NO_OUTPUT, phases=_BEFORE, codes=_TERMINAL, prepare=users.full_terminal, lab=Lab.EITHER),
    Kind(
        "stdout-closed",
        "",  # whoever reads has seen enough
        users.close_terminal,
        (Phase.SET_UP, *_POWERED),
        _TERMINAL,
        prepare=users.piped_terminal,
    ),
)

_DATABASES: Final = tuple(
    Kind(
        f"database-{word}",
        r"the index \S+ (?:cannot be reached|refused|has been held)",
        database.backend_signalled(sig),
        _BEFORE,
        within_s=120.0,
        prepare=database.server_with_runs,
        start=database.importing,
        again=database.importing,
        codes=frozenset({7}),
    )
    for word, sig in _SIGNALS.items()
)

_ROWS: Final = (*_SERVICES, *_GUEST_TIME, *_ENDS, *_DISKS, *_HOLDERS, *_BOARD, *_TERMINALS, *_DATABASES)
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in _ROWS}
