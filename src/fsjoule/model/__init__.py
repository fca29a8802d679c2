"""The nouns of fsjoule: frozen, with units in their names, and free of I/O.

For: plans, runs, measurements, traces, metrics and labels, which every room passes around.
Called by: every room.
May call: `errors`.

Sizes are powers of two (MiB). docs/architecture.md explains the words. Everything here except `Trace` is written to
JSON unchanged, so a change of a field is a change of a schema.
"""

from __future__ import annotations

from fsjoule.model.card import CardEnergies, CardModel, CardTimes, Projection
from fsjoule.model.ina219 import (
    CurrentMonitor,
    Ina219Info,
    Ina219Trace,
    InputCounts,
    MeterCalibration,
    MeterStatus,
    ResetCause,
)
from fsjoule.model.mark_line import MarkLine
from fsjoule.model.measured import (
    KERNEL_WARNED,
    MEASUREMENT_SCHEMA,
    SAMPLED,
    DamageOutcome,
    DeviceCounters,
    Energy,
    EnergyBudget,
    FileFate,
    FioResult,
    Measurement,
    Profile,
    Space,
    Symbols,
    Value,
    Window,
)
from fsjoule.model.meter import MeterInfo, PlainInfo, PlainTrace
from fsjoule.model.operation import KIB, MIB, PURE_PATTERNS, FlakeyModel, IoPattern, TimedKind, size_label
from fsjoule.model.plan import CARD, Plan, Planned, Provision, SeriesKey
from fsjoule.model.run import (
    DEFAULT_RECIPE,
    REFERENCE_KERNEL,
    REVISION,
    RUN_SCHEMA,
    BoardFacts,
    BoardProfile,
    Exporter,
    Fault,
    HostLoad,
    ImageFacts,
    JobFacts,
    KernelFacts,
    KernelOrigin,
    LabFacts,
    LabStep,
    MeterPort,
    PoolPlace,
    Reach,
    Run,
    RunStatus,
    Storage,
)
from fsjoule.model.trace import Clipped, Mark, MarkSource, SampleCounts, Trace
from fsjoule.model.workload import FioWorkload, FlakeyWorkload, PowerLossWorkload, TimedWorkload, Workload

__all__ = [
    "CARD",
    "DEFAULT_RECIPE",
    "KERNEL_WARNED",
    "KIB",
    "MEASUREMENT_SCHEMA",
    "MIB",
    "PURE_PATTERNS",
    "REFERENCE_KERNEL",
    "REVISION",
    "RUN_SCHEMA",
    "SAMPLED",
    "BoardFacts",
    "BoardProfile",
    "CardEnergies",
    "CardModel",
    "CardTimes",
    "Clipped",
    "CurrentMonitor",
    "DamageOutcome",
    "DeviceCounters",
    "Energy",
    "EnergyBudget",
    "Exporter",
    "Fault",
    "FileFate",
    "FioResult",
    "FioWorkload",
    "FlakeyModel",
    "FlakeyWorkload",
    "HostLoad",
    "ImageFacts",
    "Ina219Info",
    "Ina219Trace",
    "InputCounts",
    "IoPattern",
    "JobFacts",
    "KernelFacts",
    "KernelOrigin",
    "LabFacts",
    "LabStep",
    "Mark",
    "MarkLine",
    "MarkSource",
    "Measurement",
    "MeterCalibration",
    "MeterInfo",
    "MeterPort",
    "MeterStatus",
    "PlainInfo",
    "PlainTrace",
    "Plan",
    "Planned",
    "PoolPlace",
    "PowerLossWorkload",
    "Profile",
    "Projection",
    "Provision",
    "Reach",
    "ResetCause",
    "Run",
    "RunStatus",
    "SampleCounts",
    "SeriesKey",
    "Space",
    "Storage",
    "Symbols",
    "TimedKind",
    "TimedWorkload",
    "Trace",
    "Value",
    "Window",
    "Workload",
    "size_label",
]
