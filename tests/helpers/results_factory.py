"""Made-up runs of plausible shape, for tests of the store and the reports. No figure here was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from fsjoule.model import (
    KIB,
    MIB,
    PURE_PATTERNS,
    BoardFacts,
    DeviceCounters,
    Energy,
    EnergyBudget,
    Exporter,
    FioResult,
    FioWorkload,
    ImageFacts,
    Ina219Info,
    Ina219Trace,
    KernelFacts,
    KernelOrigin,
    LabFacts,
    Mark,
    Measurement,
    MeterPort,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
    SampleCounts,
    SeriesKey,
    TimedKind,
    TimedWorkload,
    Value,
    Window,
)

METER = Ina219Info(
    protocol=3,
    firmware="test",
    serial_number="T1",
    rate_hz=1000,
    shunt_uohm=100_000,
    shunt_range_mv=40,
    simulated=True,
)
LAB = LabFacts(
    place="virtual",
    coordinator="127.0.0.1:20408",
    exporters=(Exporter("fsjoule-virtual", "127.0.0.1"),),
    meter=MeterPort("NetworkSerialPort", "127.0.0.1:40001", "/dev/shm/fsjoule-virtual/meter"),
    user="lab@runner",
)
BOARD = BoardFacts(
    name="virtual",
    machine="Freescale i.MX6 UltraLite 14x14 EVK Board",
    kernel_release="6.1.0-44-armmp",
    kernel_version="#1 SMP Debian 6.1.164-1 (2026-03-09)",
    cpu="ARMv7 Processor rev 5 (v7l)",
    cpus=1,
    memory_bytes=512 * MIB,
    storage="mmc1 QEMU! 1024 MiB",
    storage_bytes=1024 * MIB,
    storage_bus="sdhci-esdhc-imx",
    root_filesystem="ext4",
)
IMAGE = ImageFacts(
    recipe="imx6ul",
    kernel_choice="6.1",
    kernel_package="linux-image-6.1.0-44-armmp 6.1.164-1",
    card_sha256="ab" * 32,
    checksums={"zImage": "01" * 32, "board.dtb": "23" * 32, "initrd.img": "45" * 32},
    packages={"fio": "3.33-3", "e2fsprogs": "1.47.0-2", "btrfs-progs": "6.2-1"},
    root_filesystem="ext4",
)
KERNEL = KernelFacts(
    label="6.1",
    asked="6.1",
    origin=KernelOrigin.DEBIAN,
    release=BOARD.kernel_release,
    digest="cd" * 32,
    package=IMAGE.kernel_package,
    checksums={"linux-image-6.1.0-44-armmp_6.1.164-1_armhf.deb": "67" * 32},
)
# Rough MiB/s and watts above idle by filesystem and operation, so that charts have something to show.
_SHAPE = {
    "read": (18.0, 0.12),
    "write": (9.0, 0.09),
    "randread": (7.0, 0.07),
    "randwrite": (4.0, 0.08),
}
_TIMED_S: dict[str, float] = {
    TimedKind.MKFS: 0.9,
    TimedKind.MOUNT: 0.08,
    TimedKind.UMOUNT: 0.11,
    TimedKind.BOOT: 9.5,
    TimedKind.POWER_ON: 9.5,
}
_IDLE_W = 1.10


@dataclass(frozen=True)
class MadeRun:
    run: Run
    measurements: tuple[Measurement, ...]
    traces: dict[int, Ina219Trace]


def make_trace(
    duration_s: float = 1.0, busy_w: float = 0.1, *, idle_s: float = 1.0, seed: int = 1, mark: str = "1"
) -> Ina219Trace:
    """`idle_s` of idling, the window between its two marks, and a short tail."""
    rng = np.random.default_rng(seed)
    n = int((idle_s + duration_s + 0.2) * 1000)
    first = 5_000_000 + seed
    times_us = first * 1000 + np.arange(n, dtype=np.int64) * 1000
    seconds = np.arange(n) / 1000
    inside = (seconds >= idle_s) & (seconds < idle_s + duration_s)
    bursts = 1 + 0.35 * np.sign(np.sin(seconds * 23)) * (rng.random(n) > 0.2)
    power_w = _IDLE_W + inside * busy_w * bursts + rng.normal(0, 0.004, n)
    bus_raw = np.full(n, 1250, dtype=np.int32)
    shunt_raw = np.round(power_w / METER.power_lsb_w / 1250).astype(np.int32)
    raw = np.concatenate(([0], np.cumsum(shunt_raw.astype(np.int64) * 1250)))
    start_us = int(times_us[0] + idle_s * 1e6)
    return Ina219Trace(
        info=METER,
        ticks=first + np.arange(n, dtype=np.int64),
        times_us=times_us,
        shunt_raw=shunt_raw,
        bus_raw=bus_raw,
        checkpoint_ticks=first + np.arange(0, n, 20, dtype=np.int64),
        checkpoint_raw=raw[:-1:20].astype(np.int64),
        checkpoint_bus=1250 * np.arange(0, n, 20, dtype=np.int64),
        checkpoint_missed=np.zeros(len(range(0, n, 20)), dtype=np.int64),
        marks=(Mark(start_us, f"S{mark}"), Mark(start_us + int(duration_s * 1e6), f"E{mark}")),
        missed=0,
        lost=0,
    )


def make_measurement(
    planned: Planned, *, simulated: bool = True, invalid: tuple[str, ...] = (), meter: bool = True
) -> tuple[Measurement, Ina219Trace | None]:
    rng = np.random.default_rng(planned.number)
    workload = planned.workload
    slower = {"ext4": 1.0, "btrfs": 0.62}.get(planned.filesystem, 0.8) * rng.normal(1, 0.02)
    if isinstance(workload, FioWorkload):
        speed, busy_w = _SHAPE[workload.operation.value]
        mib = workload.size_bytes / MIB
        duration_s = mib / (speed * slower * (workload.block_size_bytes / (16 * KIB)) ** 0.2)
    else:
        mib, busy_w = 0.0, 0.15
        duration_s = _TIMED_S[workload.operation.value] / slower
    trace = make_trace(duration_s, busy_w / slower, seed=planned.number, mark=str(planned.number)) if meter else None
    energy, window, idle = _energy(trace) if trace is not None else (None, None, None)
    is_fio = isinstance(workload, FioWorkload)
    measurement = Measurement(
        number=planned.number,
        slug=planned.slug,
        repetition=planned.repetition,
        boot=1,
        kernel=planned.kernel,
        series=SeriesKey(
            suite="quick",
            board="virtual",
            storage="mmc1 QEMU! 1024 MiB",
            filesystem=planned.filesystem,
            make_options=(),
            mount_options=(),
            provision=Provision.SCRATCH,
            workload=workload.slug,
        ),
        workload=workload,
        started_utc=f"2026-03-09T10:{planned.number // 60:02d}:{planned.number % 60:02d}Z",
        simulated=simulated,
        invalid_reasons=invalid,
        window_s=window.duration_s if window else None,
        duration_s=duration_s,
        throughput_mib_per_s=mib / duration_s if is_fio else None,
        iops=workload.size_bytes / workload.block_size_bytes / duration_s
        if isinstance(workload, FioWorkload)
        else None,
        energy=energy,
        energy_mj_per_mib=_per(energy.gross_mj, mib) if energy and is_fio else None,
        energy_net_mj_per_mib=_per(energy.net_mj, mib) if energy and is_fio else None,
        cpu_s_per_mib=0.4 * duration_s / mib if is_fio else None,
        write_amplification=1.03 if isinstance(workload, FioWorkload) and workload.operation.writes else None,
        samples=trace.counts if trace else None,
        counters=DeviceCounters(120, 120 * 4 * KIB, 64, int(mib * MIB), 0, 3, int(duration_s * 700)),
        cpu_busy_s=0.4 * duration_s,
        fio=_fio(workload, duration_s) if isinstance(workload, FioWorkload) else None,
        window=window,
        idle_window=idle,
    )
    return measurement, trace


def _per(value: Value, mib: float) -> Value:
    return Value(value.value / mib, value.uncertainty / mib)


def _energy(trace: Ina219Trace) -> tuple[Energy, Window, Window]:
    start_us, stop_us = trace.marks[0].time_us, trace.marks[1].time_us
    power_w = trace.power_w
    inside = (trace.times_us >= start_us) & (trace.times_us < stop_us)
    before = trace.times_us < start_us - 50_000
    seconds = (stop_us - start_us) / 1e6
    mean_w, idle_w = float(power_w[inside].mean()), float(power_w[before].mean())
    gross_mj = mean_w * seconds * 1000
    energy = Energy(
        gross_mj=Value(gross_mj, gross_mj * 0.003),
        net_mj=Value((mean_w - idle_w) * seconds * 1000, gross_mj * 0.004),
        idle_power_w=Value(idle_w, 0.002),
        mean_power_w=Value(mean_w, 0.003),
        power_sd_w=float(power_w[inside].std()),
        check_mj=gross_mj,
        check_sum_mj=gross_mj,
        lost_ticks=0,
        missed_ticks=0,
        gross_budget=_budget(gross_mj * 0.003, idle_mj=0.0),
        net_budget=_budget(gross_mj * 0.004, idle_mj=gross_mj * 0.001),
    )
    return energy, Window(start_us, stop_us), Window(float(trace.times_us[0]), start_us - 50_000.0)


def _budget(total_mj: float, *, idle_mj: float) -> EnergyBudget:
    """A budget of that total, with the shares of an uncalibrated meter."""
    rest_mj = math.sqrt(total_mj**2 - idle_mj**2)
    shares = {"shunt_mj": 0.82, "gain_mj": 0.5, "offset_mj": 0.2, "shunt_rounding_mj": 0.15, "bus_rounding_mj": 0.1}
    scale = rest_mj / math.hypot(*shares.values())
    none = dict.fromkeys((field.name for field in fields(EnergyBudget)), 0.0)
    return EnergyBudget(**none | {name: share * scale for name, share in shares.items()} | {"idle_mj": idle_mj})


def _fio(workload: FioWorkload, duration_s: float) -> FioResult:
    ios = workload.size_bytes // workload.block_size_bytes
    return FioResult(
        version="fio-3.33",
        runtime_ns=int(duration_s * 1e9),
        io_bytes=workload.size_bytes,
        ios=ios,
        latency_mean_ns=duration_s / ios * 1e9,
        latency_max_ns=90_000_000,
        latency_percentiles_ns={"50.000000": 800_000, "95.000000": 2_100_000, "99.000000": 9_000_000},
        usr_cpu_percent=3.1,
        sys_cpu_percent=38.5,
        errors=0,
        error=0,
    )


def make_run(
    *,
    filesystems: tuple[str, ...] = ("ext4", "btrfs"),
    kernels: tuple[str, ...] = ("6.1",),
    repeat: int = 3,
    size_mib: int = 16,
    block_sizes_kib: tuple[int, ...] = (16,),
    simulated: bool = True,
    status: RunStatus = RunStatus.COMPLETE,
) -> MadeRun:
    """A whole run in which measurement 2 is invalid and measurement 3 has no energy."""
    workloads = [
        FioWorkload(operation, block * KIB, size_mib * MIB) for operation in PURE_PATTERNS for block in block_sizes_kib
    ]
    timed = [TimedWorkload(TimedKind.MKFS), TimedWorkload(TimedKind.MOUNT), TimedWorkload(TimedKind.UMOUNT)]
    cells = [
        (r, kernel, fs, workload)
        for kernel in kernels
        for fs in filesystems
        for workload in [*workloads, *timed]
        for r in range(1, repeat + 1)
    ]
    cells += [(1, kernel, "ext4", TimedWorkload(TimedKind.BOOT)) for kernel in kernels]
    order = np.random.default_rng(7).permutation(len(cells))
    entries = tuple(
        Planned(number, *cells[i], suite="quick", provision=Provision.SCRATCH)
        for number, i in enumerate(order, start=1)
    )
    made = [
        make_measurement(
            entry,
            simulated=simulated,
            invalid=("window 2.314 s and fio's runtime 2.101 s differ by 10.1 % (limit 2 %)",)
            if entry.number == 2
            else (),
            meter=entry.number != 3,
        )
        for entry in entries
    ]
    run = Run(
        run_id="k3v9q2",
        started_utc="2026-03-09T10:00:00Z",
        status=status,
        simulated=simulated,
        plan=Plan("quick", filesystems, kernels, repeat, 7, {}, entries),
        kernels=tuple(replace(KERNEL, label=kernel, asked=kernel) for kernel in kernels),
        boards={kernel: replace(BOARD) if simulated else replace(BOARD, name="colibri") for kernel in kernels},
        images=tuple(replace(IMAGE, kernel_choice=kernel) for kernel in kernels),
        meter=METER,
        versions={"fsjoule": "0.1.0", "qemu": "7.2.19", "fio": "3.33", "mkfs.btrfs": "6.2", "mkfs.ext4": "1.47.0"},
        phases_s={
            "setup": 14.2,
            "flash": 9.8,
            "boot": 21.4,
            "provisioning": 40.3,
            "fio": 118.0,
            "timed": 31.1,
            "idle": 84.0,
            "other": 22.7,
            "board_on": 301.5,
        },
        finished_utc="2026-03-09T10:05:41Z",
        command=("pytest", "tests/bench", "--lg-env", "env/virtual.yaml", "--fs", ",".join(filesystems)),
    )
    measurements = tuple(measurement for measurement, _ in made)
    return MadeRun(run, measurements, {m.number: trace for m, trace in made if trace is not None})


def sample_counts(lost: int) -> SampleCounts:
    return SampleCounts(1000, 1000 - lost, 0, lost)
