"""The kernel's events during a measurement: who ran, what the storage was asked for, when files were synced.

They come from tracefs, from an instance of our own, in which each event has a time. What tells the meter of the start
and the stop writes its mark there, too: so the board's clock is put on the meter's. Tracing slows the board down.
Source: the kernel's Documentation/trace/ftrace.rst, section "Instances", and events.rst.
"""

from __future__ import annotations

from typing import Final

from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import ConfigError, LabError
from fsjoule.model.kernel_events import TRACED
from fsjoule.ports import Shell
from fsjoule.store.events import EVENTS_FILE, encode_events

_INSTANCE: Final = onboard.TRACING
_FILE: Final = f"{onboard.DIRECTORY}/events"
# About 200,000 events. Newer ones are dropped when it is full, so that what is there has no hole.
_BUFFER_KIB: Final = 16_384
# A kernel lacks those of what it was not built with; without the first one there is no timeline.
_EVENTS: Final = (
    *("sched/sched_switch", "block/block_rq_issue", "block/block_rq_complete", "power/cpu_frequency"),
    *("workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"),
    *(f"syscalls/sys_{end}_{call}" for call in ("fsync", "fdatasync", "sync_file_range") for end in ("enter", "exit")),
)
_BEGIN: Final = f"""\
[ -d /sys/kernel/tracing/instances ] || mount -t tracefs none /sys/kernel/tracing || exit 3
mkdir -p {_INSTANCE} && cd {_INSTANCE} && [ -e events/{_EVENTS[0]} ] || exit 3
echo 0 > tracing_on && echo > trace && echo 0 > options/overwrite && echo mono > trace_clock || exit 3
echo {_BUFFER_KIB} > buffer_size_kb || exit 4
for event in {" ".join(_EVENTS)}; do [ ! -e events/$event ] || echo 1 > events/$event/enable; done
echo 1 > tracing_on
"""
_NO_EVENTS: Final = 3
_TAKE: Final = f"cd {_INSTANCE} && echo 0 > tracing_on && {{ cat per_cpu/cpu*/stats trace; }} > {_FILE} && echo > trace"
_TIMEOUT_S: Final = 300.0


def begin_events(shell: Shell) -> None:
    """Trace from now on. Raises ConfigError for a kernel without events, LabError for a board without the memory."""
    done = shell.run(("sh", "-c", _BEGIN), timeout_s=_TIMEOUT_S)
    if done.exit_code == _NO_EVENTS:
        raise ConfigError(
            "the board's kernel has no events that could be traced",
            hint="build it with CONFIG_FTRACE=y and CONFIG_SCHED_TRACER=y, or any other tracer",
        )
    if done.exit_code != 0:
        raise LabError(f"the board's kernel does not trace its events: {done.stdout.strip()[-200:]}")


def attach_events(shell: Shell, evidence: WorkFacts) -> None:
    """Put the events since `begin_events` beside the other files of what was just measured, whose figures do not count.

    Raises LabError if they cannot be read.
    """
    evidence.complaints.append(TRACED)
    done = shell.run(("sh", "-c", _TAKE), timeout_s=_TIMEOUT_S)
    if done.exit_code != 0:
        raise LabError(f"the board's events cannot be read: {done.stdout.strip()[-200:]}")
    evidence.attachments[EVENTS_FILE] = encode_events(shell.get(_FILE))
    shell.run(("rm", "-f", _FILE))
