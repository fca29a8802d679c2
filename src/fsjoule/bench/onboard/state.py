"""The script on the board that reads its state, and the parser of its output.

It needs a POSIX shell and grep; with systemd also systemctl. Sources: Linux: cpu-freq/cpufreq-stats.rst,
driver-api/thermal/sysfs-api.rst, ABI/testing/sysfs-devices-system-cpu (thermal_throttle), hwmon/raspberrypi-hwmon.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.model import BoardState

SCRIPT: Final = f"{DIRECTORY}/state"
# Programs of which a look at all processes tells, as the kernel names them: at most 15 characters. The first ones
# write to disks or search them; the others do something now and then.
DISTURBING: Final = (
    *("apt", "apt-get", "apt.systemd.dai", "unattended-upgr", "dpkg", "fstrim", "updatedb", "updatedb.mlocat"),
    *("updatedb.plocat", "mandb", "e2scrub", "e2scrub_all", "xfs_scrub", "logrotate"),
)
_OTHERS: Final = ("cron", "crond", "anacron", "atd", "systemd-timesyn", "chronyd", "ntpd", "snapd", "packagekitd")
_CRONS: Final = ("cron", "crond", "anacron", "atd")

_NAMES: Final = "|".join(map(re.escape, (*DISTURBING, *_OTHERS)))
# ROOT is for tests. Few programs: a slow board takes 0.05 s to start one.
TEXT: Final = rf"""#!/bin/sh
# state [ROOT]: lines FILE:TEXT, load averages, processes, systemd's timers
cpu=devices/system/cpu policy=devices/system/cpu/cpufreq/policy thermal=class/thermal
cd "$1/sys" && grep -sH . $policy*/scaling_governor $policy*/scaling_cur_freq $policy*/scaling_max_freq \
    $policy*/cpuinfo_max_freq $policy*/stats/time_in_state $cpu/cpu[0-9]*/thermal_throttle/*_throttle_count \
    $thermal/thermal_zone*/type $thermal/thermal_zone*/temp $thermal/cooling_device*/type \
    $thermal/cooling_device*/cur_state $thermal/cooling_device*/stats/total_trans \
    class/hwmon/hwmon*/name class/hwmon/hwmon*/in0_lcrit_alarm devices/platform/soc*/*firmware/get_throttled
cd "$1/proc" && read -r load < loadavg && echo "$load" && grep -shE '^[0-9]+ \(({_NAMES})\) ' [0-9]*/stat
[ ! -d "$1/run/systemd/system" ] || timeout 10 systemctl show -p Id -p LastTriggerUSec '*.timer' 2> /dev/null
exit 0
"""
_USER_HZ: Final = 100
_COUNTS: Final = ("core_throttle_count", "package_throttle_count")


def governor_argv(governor: str) -> tuple[str, ...]:
    """The command that sets the governor, a plain word. If it fails, its output are all those that the board has."""
    refused = "{ cat policy*/scaling_available_governors; exit 1; }"
    setting = f'for f in policy*/scaling_governor; do echo {governor} > "$f" || {refused}; done'
    return ("sh", "-c", f"exec 2> /dev/null; cd /sys/devices/system/cpu/cpufreq && {setting}")


@dataclass(frozen=True, slots=True)
class StateReading:
    """What one run of the script tells. `at_khz_s`: seconds since the boot by policy and frequency.

    `work` is what timers and programs have done so far, by name and process number ("" for a timer).
    """

    state: BoardState
    at_khz_s: Mapping[str, Mapping[int, float]] = field(default_factory=dict[str, dict[int, float]])
    work: Mapping[tuple[str, str], str | float] = field(default_factory=dict[tuple[str, str], str | float])


def reading(text: str) -> StateReading:
    """Parse the script's output. What is not understood is left out: another kernel may tell something else."""
    lines = [line.strip() for line in text.splitlines()]
    files = dict[str, str]()  # lines of one file follow each other
    for line in lines:
        if matched := re.fullmatch(r"([\w/.:@-]+/\w+):(.*)", line):
            files[matched[1]] = f"{files.get(matched[1], '')}\n{matched[2]}".strip()
    kinds, chips = dict(_texts(files, "type")), dict(_texts(files, "name"))
    zones = {kinds.get(zone, zone): value / 1000 for zone, value in _numbers(files, "temp")}
    zones = {name: celsius for name, celsius in zones.items() if -60 < celsius < 200}  # noqa: PLR2004 - else no sensor
    hottest = max(zones, key=lambda zone: zones[zone], default="")
    cooling = {
        device: f"{kind} ({device})" for device, kind in kinds.items() if re.search(r"cpufreq|^Processor$", kind)
    }
    counts = {f"{cpu} {kind}": count for kind in _COUNTS for cpu, count in _numbers(files, f"thermal_throttle/{kind}")}
    changes = {each: count for each, count in _numbers(files, "stats/total_trans") if each in cooling}
    levels = {cooling[each]: level for each, level in _numbers(files, "cur_state") if each in cooling}
    for each, alarm in _numbers(files, "in0_lcrit_alarm"):
        levels |= {"undervoltage alarm": alarm} if chips.get(each) == "rpi_volt" else {}
    flags = [text for _, text in _texts(files, "get_throttled") if re.fullmatch(r"(0x)?[0-9a-f]{1,8}", text)]
    load = next((line.split()[0] for line in lines if re.fullmatch(r"(\d+\.\d\d ){3}\d+/\d+ \d+", line)), None)
    return StateReading(
        BoardState(
            governors=dict(_texts(files, "scaling_governor")),
            current_khz=dict(_numbers(files, "scaling_cur_freq")),
            cap_khz=dict(_numbers(files, "scaling_max_freq")),
            max_khz=dict(_numbers(files, "cpuinfo_max_freq")),
            hottest_c=zones.get(hottest),
            hottest_zone=hottest,
            throttle_counts=counts | {f"changes of {cooling[each]}": count for each, count in changes.items()},
            throttle_levels=levels,
            firmware_flags=int(flags[0], 16) if flags else None,
            load=None if load is None else float(load),
        ),
        at_khz_s={
            policy: {int(khz): int(ticks) / _USER_HZ for khz, ticks in re.findall(r"^(\d+) (\d+)$", rows, re.MULTILINE)}
            for policy, rows in _texts(files, "stats/time_in_state")
        },
        work={**dict(_timers(lines)), **dict(_programs(lines))},
    )


def _texts(files: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """The folders that have a file of this name, by their own last names, and its text."""
    for path, text in files.items():
        if path.endswith(f"/{name}"):
            yield path.removesuffix(f"/{name}").rpartition("/")[2], text


def _numbers(files: Mapping[str, str], name: str) -> Iterator[tuple[str, int]]:
    return ((folder, int(text)) for folder, text in _texts(files, name) if re.fullmatch(r"-?[0-9]{1,18}", text))


def _timers(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """The blocks of `systemctl show`, whose lines may come in any order."""
    block = dict[str, str]()
    for line in (*lines, ""):
        name, _, value = line.partition("=")
        block = {**block, name: value} if name in ("Id", "LastTriggerUSec") else {}
        if len(block) > 1:
            yield (block["Id"], ""), block["LastTriggerUSec"]


def _programs(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], float]]:
    """Ticks of work, by the lines of /proc/[pid]/stat: proc_pid_stat(5), fields 1 to 3 and 14 to 17."""
    for line in lines:
        if matched := re.fullmatch(r"(\d+) \((.*)\) (\w) (-?\d+(?: -?\d+){13,})", line):
            number, name, state, rest = matched.groups()
            user, system, children_user, children_system = map(int, rest.split()[10:14])
            # One that waits for a disk uses no time, and NaN differs from itself; others of its name sleep for days.
            yield (name, number), math.nan if name in DISTURBING and state in "RD" else user + system
            if name in _CRONS and children_user + children_system:
                yield (f"a job of {name}", number), children_user + children_system
