"""Scripts that hold the board in a state, count what wakes it, and suspend it; and the parsers of their output.

They need a POSIX shell, grep, cat, setsid and sleep, and from the kernel /proc alone. Suspending needs rtcwake, too.
Sources: Linux: filesystems/proc.rst, sections 1.1 and 1.2; admin-guide/pm/sleep-states.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.model import HeldFacts
from fsjoule.model.kernel_events import thread_name

WATCHED: Final = f"{DIRECTORY}/watched"
HELD: Final = f"{DIRECTORY}/held"
SUSPENDABLE: Final = f"{DIRECTORY}/suspendable"
LACKS: Final = 3
SUSPENDED: Final = f"{DIRECTORY}/suspended"
SEEN_BEFORE: Final = f"{DIRECTORY}/seen-before"
SEEN_AFTER: Final = f"{DIRECTORY}/seen-after"
SAID: Final = f"{DIRECTORY}/held-said"
SLEPT: Final = f"{DIRECTORY}/slept"
_PIDS: Final = f"{DIRECTORY}/held-pids"
_MOST: Final = 5
_LONGEST_NAME: Final = 60
# Before an alarm is trusted with a board that is asleep, it has to arrive at one that is awake.
_ALARM_S: Final = 2
_ALARM_LIMIT_S: Final = 20

SCRIPTS: Final = {
    # watched PROGRAM...: counters around a program, outside the window of its marks. It ends what `held` started.
    WATCHED: f"""#!/bin/sh
seen() {{
 cd /proc && cat uptime stat interrupts && grep -sE '^(Name|voluntary_ctxt_switches):' [0-9]*/task/[0-9]*/status
 grep -as . [0-9]*/cmdline
}}
(seen) > {SEEN_BEFORE} 2> /dev/null
"$@"
status=$?
(seen) > {SEEN_AFTER} 2> /dev/null
for pid in $(cat {_PIDS}); do kill -9 -"$pid" || kill -9 "$pid"; done 2> /dev/null
exit $status
""",
    # held SECONDS COPIES [COMMAND...]: 0 copies are one for each processor. Fails if one ends before its time.
    HELD: f"""#!/bin/sh
seconds=$1; copies=$2; shift 2
[ "$copies" != 0 ] || copies=$(grep -c '^processor' /proc/cpuinfo)
[ $# -gt 0 ] || copies=0
pids= started=0 status=0
: > {_PIDS}
: > {SAID}
while [ $started -lt "$copies" ]; do
 setsid "$@" < /dev/null >> {SAID} 2>&1 &
 pids="$pids $!"; started=$((started + 1))
done
echo "$pids" > {_PIDS}
sleep "$seconds" || status=1
for pid in $pids; do kill -0 "$pid" || status=1; done 2>> {SAID}
exit $status
""",
    # suspendable: says why the board cannot be suspended to RAM and woken by its clock; LACKS: it has nothing for it.
    SUSPENDABLE: f"""#!/bin/sh
read -r states < /sys/power/state 2> /dev/null
case " $states " in
*" mem "*) ;;
*) echo "this kernel has no suspend to RAM: /sys/power/state has '$states'"; exit {LACKS} ;;
esac
if ! [ -e /dev/rtc0 ]; then echo "the board has no clock that could wake it: there is no /dev/rtc0"; exit {LACKS}; fi
if ! command -v rtcwake > /dev/null; then echo "the board has no rtcwake (util-linux or busybox)"; exit 1; fi
if ! said=$(timeout -s KILL {_ALARM_LIMIT_S} rtcwake -m on -s {_ALARM_S} 2>&1); then
 echo "its clock cannot wake it: an alarm in {_ALARM_S} s did not come within {_ALARM_LIMIT_S} s: $said"
 exit 1
fi
echo 1 > /sys/power/pm_debug_messages
cat /sys/power/mem_sleep
exit 0
""",
    # suspended SECONDS: /proc/uptime goes on while the board is asleep.
    SUSPENDED: f"""#!/bin/sh
read -r begin rest < /proc/uptime
rtcwake -m mem -s "$1" > {SAID} 2>&1
status=$?
read -r end rest < /proc/uptime
echo "$begin $end" > {SLEPT}
exit $status
""",
}


def watched(before: str, after: str) -> HeldFacts | None:
    """What woke the board between two outputs of `watched`; None if they have no interrupts or no time."""
    first, last = _reading(before), _reading(after)
    seconds = last.uptime_s - first.uptime_s
    if seconds <= 0 or not last.interrupts:
        return None
    by = {name: (count - first.interrupts.get(name, 0)) / seconds for name, count in last.interrupts.items()}
    woken: dict[str, float] = {}
    for task, (name, count) in last.switches.items():
        known, earlier = first.switches.get(task, ("", 0))
        # A kernel's worker is called after what it does at the moment; a process may become another program.
        slept = count - earlier if known and count >= earlier else count
        woken[name] = woken.get(name, 0.0) + slept / seconds
    return HeldFacts(
        interrupts_per_s=sum(by.values()),
        woken_by_per_s=_greatest(by),
        woken_per_s=_greatest(woken),
        programs_per_s=max(0, last.programs - first.programs) / seconds,
    )


def _greatest(rates: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(((name, rate) for name, rate in rates.items() if rate > 0), key=lambda each: (-each[1], each[0]))
    return dict(ordered[:_MOST])


@dataclass(frozen=True, slots=True)
class _Reading:
    """`switches` are those of each thread by its folder in /proc, with its name; all counts are since the boot."""

    uptime_s: float
    programs: int
    interrupts: Mapping[str, int]
    switches: Mapping[str, tuple[str, int]]


def _reading(text: str) -> _Reading:
    """What is not understood is left out."""
    uptime = re.match(r"(\d+\.\d+) ", text)
    programs = re.search(r"^processes (\d+)$", text, re.MULTILINE)
    interrupts: dict[str, int] = {}
    for name, count in _interrupts(text):
        interrupts[name] = interrupts.get(name, 0) + count
    commands = {
        number: " ".join(re.sub(r"[^ -~]+", " ", words).split())
        for number, words in re.findall(r"^(\d+)/cmdline:(.*)$", text, re.MULTILINE)
    }
    switches: dict[str, tuple[str, int]] = {}
    name = ""
    for number, task, key, value in re.findall(r"^(\d+)/(task/\d+)/status:(\w+):\t(.*)$", text, re.MULTILINE):
        if key == "Name":
            name = commands[number][:_LONGEST_NAME] if commands.get(number) else thread_name(value)
        elif value.isdecimal():
            switches[f"{number}/{task}"] = name, int(value)
    return _Reading(float(uptime[1]) if uptime else 0.0, int(programs[1]) if programs else 0, interrupts, switches)


def _interrupts(text: str) -> Iterator[tuple[str, int]]:
    """The interrupts of all processors by name: the device's, or what the kernel says of its own kinds.

    `26:  2673  GICv2  30 Level  arch_timer`, `24: 7 IO-APIC 2-edge timer`, `LOC: 99 Local timer interrupts`.
    """
    head = re.search(r"^ +(CPU\d+ *)+$", text, re.MULTILINE)
    if head is None:
        return
    processors = head[0].split()
    for line in text[head.end() :].lstrip("\n").splitlines():
        row = re.fullmatch(rf" *(\w+):((?: +\d+){{1,{len(processors)}}})(?: +(.*))?", line)
        if row is None:
            return
        kind, counts, rest = row.groups()
        if kind in ("Err", "ERR", "MIS"):
            continue  # faults, which interrupt nothing that is counted elsewhere
        words = (rest or kind).split()
        if kind.isdecimal():
            at = next((i for i, word in enumerate(words) if re.fullmatch(r"Level|Edge|\d+-\w+", word)), len(words) - 2)
            words = words[at + 1 :] or words
        yield " ".join(words), sum(map(int, counts.split()))


def asleep(text: str, kernel_log: str, awake_s: float) -> tuple[float, float, float | None]:
    """Seconds that `suspended` took, those of them in which the kernel's clock stood still, and those of the resume.

    `text` is its output in `SLEPT`, `awake_s` its time by the kernel's monotonic clock, which stands still while the
    board sleeps. The resume begins where the kernel says how long its clock stood still (`pm_debug_messages`, since
    4.16), and ends with its last message; None without these. Raises ValueError if the output cannot be read.
    """
    begin, end = map(float, text.split())
    times = [
        (float(seconds), words)
        for seconds, words in re.findall(r"^(?:<\d+>)?\[ *(\d+\.\d+)\] (.*)$", kernel_log, re.MULTILINE)
    ]
    woke = [seconds for seconds, words in times if "Timekeeping suspended for" in words]
    done = [seconds for seconds, words in times if "PM: suspend exit" in words]
    took_s = end - begin
    return took_s, max(0.0, took_s - awake_s), done[-1] - woke[-1] if woke and done and done[-1] > woke[-1] else None
