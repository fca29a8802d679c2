"""Parts of sysfs and proc of three boards, file by file, in the kernel's own forms: a board's state is read there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_CPUFREQ = "sys/devices/system/cpu/cpufreq"
_THERMAL = "sys/class/thermal"


def _cpufreq(policy: str, governor: str, current: int, most: int, spent: str) -> dict[str, str]:
    folder = f"{_CPUFREQ}/{policy}"
    return {
        f"{folder}/scaling_governor": governor,
        f"{folder}/scaling_cur_freq": str(current),
        f"{folder}/scaling_max_freq": str(most),
        f"{folder}/cpuinfo_max_freq": str(most),
        f"{folder}/stats/time_in_state": spent,
    }


def _process(number: int, name: str, *, state: str = "S", ticks: int = 0, children: int = 0) -> dict[str, str]:
    return {
        f"proc/{number}/stat": f"{number} ({name}) {state} 1 {number} {number} 0 -1 4194560 900 0 3 0 "
        f"{ticks} 0 {children} 0 20 0 1 0 2345 3000000 200 18446744073709551615"
    }


# An i.MX6UL: cpufreq-dt with cooling by the CPU's frequency.
IMX6 = {
    **_cpufreq("policy0", "ondemand", 396000, 696000, "198000 6000\n396000 1200\n528000 0\n696000 340"),
    f"{_THERMAL}/thermal_zone0/type": "imx_thermal_zone",
    f"{_THERMAL}/thermal_zone0/temp": "41250",
    f"{_THERMAL}/cooling_device0/type": "cpufreq-cpu0",
    f"{_THERMAL}/cooling_device0/cur_state": "0",
    f"{_THERMAL}/cooling_device0/stats/total_trans": "4",
    "proc/loadavg": "0.31 0.12 0.04 1/52 321",
    **_process(300, "cron", ticks=5, children=12),
    **_process(301, "sshd", ticks=5),
}
# A Raspberry Pi 4 with its vendor's kernel: firmware's flags, and a fan, which holds nothing back.
RASPBERRY_PI = {
    **_cpufreq("policy0", "performance", 1500000, 1500000, "600000 10\n1500000 90000"),
    f"{_THERMAL}/thermal_zone0/type": "cpu-thermal",
    f"{_THERMAL}/thermal_zone0/temp": "58426",
    f"{_THERMAL}/cooling_device0/type": "pwm-fan",
    f"{_THERMAL}/cooling_device0/cur_state": "3",
    "sys/class/hwmon/hwmon0/name": "cpu_thermal",
    "sys/class/hwmon/hwmon1/name": "rpi_volt",
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "50000",
    "proc/loadavg": "1.07 0.52 0.20 2/180 4711",
    **_process(400, "systemd-timesyn", ticks=8),
    **_process(401, "unattended-upgr", ticks=20),
}
# A PC: counters of throttling, zones without a sensible value, cooling by the ACPI processor driver.
X86 = {
    **_cpufreq("policy0", "schedutil", 800000, 3200000, "3200000 500\n800000 70000"),
    **_cpufreq("policy1", "schedutil", 800000, 3200000, "3200000 700\n800000 69800"),
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "12",
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "20",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_total_time_ms": "77",
    "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "0",
    f"{_THERMAL}/thermal_zone0/type": "acpitz",
    f"{_THERMAL}/thermal_zone0/temp": "27800",
    f"{_THERMAL}/thermal_zone1/type": "x86_pkg_temp",
    f"{_THERMAL}/thermal_zone1/temp": "63000",
    f"{_THERMAL}/thermal_zone2/type": "iwlwifi_1",
    f"{_THERMAL}/thermal_zone2/temp": "-274000",
    f"{_THERMAL}/cooling_device0/type": "Processor",
    f"{_THERMAL}/cooling_device0/cur_state": "0",
    f"{_THERMAL}/cooling_device1/type": "intel_powerclamp",
    f"{_THERMAL}/cooling_device1/cur_state": "-1",
    "proc/loadavg": "0.02 1.29 2.91 1/89 22232",
}


def lay(root: Path, tree: Mapping[str, str], **changed: str) -> Path:
    """Write the files below `root`; `changed` by the last parts of their names, with `__` for a slash."""
    for path, text in tree.items():
        new = [value for name, value in changed.items() if path.endswith(f"/{name.replace('__', '/')}")]
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{(new or [text])[0]}\n")
    return root
