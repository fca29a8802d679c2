"""What runs have of a profile's parts: one row of figures per boot, for each filesystem of one board."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from fsjoule.errors import ConfigError
from fsjoule.model import CARD, MIB, FileFate, FioWorkload, Measurement, PoolPlace, Provision, Run, SeriesKey
from fsjoule.model.filesystem import content_of, is_unflushed
from fsjoule.model.kernel import Kernel, is_of, kernels_of
from fsjoule.model.labels import counted, listed, series_labels
from fsjoule.model.metrics import Figure
from fsjoule.statistics.figures import one_per_boot
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.store.run_folders import find_runs
from fsjoule.verdicts.advice.parts import FSCK, POWER_LOSS

Boot = tuple[str, str, int]
GUEST_TIME_CUTS: Final = "a board in guest time stands still while it waits, so power is never cut at a random moment"
_RAW: Final = "raw"


class PartFigures(NamedTuple):
    """One part on one boot, per MiB of a fio job, or for an operation as a whole.

    `uncertainty_j` is the meter's (k=1), `written_mib` what the device was told to write (raw flash: what was erased),
    `p99_s` the time within which
    99 of 100 requests (or their fsyncs) were done. A figure that was not measured is None.
    """

    joules: Figure
    uncertainty_j: Figure
    seconds: Figure
    written_mib: Figure
    p99_s: Figure


class PowerCut(NamedTuple):
    """One power cut: files whose fsync had returned, those of them that were lost, and the mount after it."""

    promised: int
    lost: int
    fates: Mapping[FileFate, int]
    unmountable: bool
    mount_s: Figure


@dataclass(frozen=True, slots=True)
class FilesystemEvidence:
    """What was measured of one filesystem: rows per boot by the part's slug, power cuts, checks and idle power.

    `storage` is the board's name of the device that it is on, `flash_mib` the size of raw flash; None on other storage.
    """

    label: str
    name: str
    rows: Mapping[str, Mapping[Boot, PartFigures]] = field(default_factory=dict[str, Mapping[Boot, PartFigures]])
    cuts: tuple[PowerCut, ...] = ()
    fsck_s: tuple[Figure, ...] = ()
    unflushed: bool = False
    flash_mib: Figure = None
    storage: str = CARD


@dataclass(frozen=True, slots=True)
class AdviceEvidence:
    """All that was measured of one board, kernel and meter, on one storage device or on several, with commas.

    `idle_w` has the board's idle power, one per boot, `idle_uncertainty_w` the meter's own (k=1). `environment` is the
    environment file of the newest run ("" if unknown). `runs` are their folders by id. `invalid` counts measurements
    that were not used. In `guest_time` the figures have a projected card's time and energy in them. `no_cuts` says why
    a power cut cannot lose files there, or cannot be measured; empty if it can, or if that is not known.
    """

    board: str
    storage: str
    kernel: str
    simulated: bool
    filesystems: tuple[FilesystemEvidence, ...]
    idle_w: tuple[float, ...]
    idle_uncertainty_w: float
    runs: dict[str, Path]
    environment: str
    invalid: int
    damaged: dict[str, str]
    guest_time: bool = False
    no_cuts: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """One valid measurement with what tells it apart from those of other boards."""

    run: Run
    measurement: Measurement
    storage: str
    kernel: Kernel | None

    @property
    def boot(self) -> Boot:
        """The repetition, which is a boot; where a run was interrupted, two boots that share its entries."""
        return self.run.run_id, self.measurement.kernel, self.measurement.repetition


def evidence(paths: Iterable[Path], *, kernel: str | None = None, storage: str | None = None) -> AdviceEvidence:
    """Read the runs at and below `paths`. `kernel` and `storage` (names with commas) choose if the runs have several.

    Raises ConfigError for runs of different boards, kernels, meters or storage devices, and for runs without a valid
    measurement of a filesystem on scratch; ResultError for a run that cannot be read.
    """
    folders, faults = find_runs(paths)
    loaded = [load_run(folder) for folder in folders]
    damaged = {str(fault.path): fault.reason for fault in faults}
    return evidence_of(loaded, damaged, kernel=kernel, storage=storage)


def evidence_of(
    loaded: Sequence[LoadedRun],
    damaged: Mapping[str, str] | None = None,
    *,
    kernel: str | None = None,
    storage: str | None = None,
    like_newest: bool = False,
) -> AdviceEvidence:
    """What these runs have; `damaged` are folders that could not be read, with the reason. Raises ConfigError.

    With `like_newest` runs of another place, device, meter or kernel than the newest run's are left out.
    """
    faults = dict(damaged or {})
    found: list[_Found] = []
    invalid = 0
    for one in loaded:
        faults |= {f"{one.run.run_id} {name}": why for name, why in one.damaged.items()}
        storages = {entry.number: entry.storage for entry in one.run.plan.entries}
        kernels = kernels_of(one.run)
        for m in one.measurements:
            if m.series.provision is not Provision.SCRATCH or m.workload.is_boot or m.series.filesystem == _RAW:
                continue
            invalid += not m.valid
            if m.valid:
                found.append(_Found(one.run, m, storages.get(m.number, CARD), kernels.get(m.kernel)))
    if not found:
        why = f"their {counted(invalid, 'measurement')} of filesystems are invalid" if invalid else "they have none"
        raise ConfigError(
            f"no valid measurement of a filesystem on a scratch partition or storage device: {why}",
            hint="measure one: fsjoule advise --profile NAME --lg-env FILE",
        )
    found = _of_storage(found, storage)
    found = _like_newest(found) if like_newest else _of_kernel(found, kernel)
    _check_one_board(found)
    folders = {one.run.run_id: one.path for one in loaded}
    newest = max((one.run for one in found), key=lambda run: run.started_utc)
    idle = [(one.boot, one.measurement.energy) for one in found if one.measurement.energy]
    first = found[0]
    idle_w = one_per_boot((boot, energy.idle_power_w.value) for boot, energy in idle)
    return AdviceEvidence(
        board=first.measurement.series.board,
        storage=",".join(dict.fromkeys(one.storage for one in found)),
        kernel=first.kernel.label if first.kernel else "",
        simulated=any(one.measurement.simulated or one.run.simulated for one in found),
        filesystems=tuple(_filesystems(found)),
        idle_w=tuple(figure for figure in idle_w if figure is not None),
        idle_uncertainty_w=max((energy.idle_power_w.uncertainty for _, energy in idle), default=0.0),
        runs={run_id: folders[run_id] for run_id in sorted({one.run.run_id for one in found})},
        environment=_environment(newest),
        invalid=invalid,
        damaged=faults,
        guest_time=(guest_time := any(one.measurement.projected for one in found)),
        no_cuts=GUEST_TIME_CUTS if guest_time else "",
    )


def _of_storage(found: Sequence[_Found], wanted: str | None) -> list[_Found]:
    names = sorted({one.storage for one in found})
    if wanted is None and len(names) > 1:
        hint = f"choose: --storage {names[0]}, or --storage {','.join(names)} to compare"
        raise ConfigError(f"the runs measured several storage devices: {', '.join(names)}", hint=hint)
    chosen = names if wanted is None else listed(wanted, option="--storage")
    for each in chosen:
        if each not in names:
            raise ConfigError.unknown("storage device of these runs", each, names)
    return [one for one in found if one.storage in chosen]


def _of_kernel(found: Sequence[_Found], wanted: str | None) -> list[_Found]:
    kernels = {one.kernel.label if one.kernel else "an unknown kernel": one for one in found}
    if wanted is None and len(kernels) > 1:
        names = sorted(kernels)
        newest = max(kernels, key=lambda name: one.order if (one := kernels[name].kernel) else "")
        hint = f"choose one, for example --kernel {shlex.quote(newest)}"
        raise ConfigError(f"the runs measured different kernels: {', '.join(names)}", hint=hint)
    if wanted is None:
        return list(found)
    chosen = {
        label for label, one in kernels.items() if one.kernel and (label == wanted or is_of(one.kernel.release, wanted))
    }
    if len(chosen) != 1:
        raise ConfigError.unknown("kernel of these runs", wanted, kernels)
    return [one for one in found if one.kernel and one.kernel.label in chosen]


def _check_one_board(found: Sequence[_Found]) -> None:
    """Raise ConfigError if the measurements are not of one board, device and meter: their figures do not add up."""
    for storage, (name, part) in product(dict.fromkeys(one.storage for one in found), _SAME.items()):
        known = {part(one): one.run.run_id for one in found if name != "devices" or one.storage == storage}
        known.pop("", None)
        if len(known) > 1:
            said = ", ".join(f"{value} (run {run_id})" for value, run_id in sorted(known.items()))
            raise ConfigError(
                f"the runs are of different {name}: {said}", hint="advise on one board at a time: name its runs only"
            )


def _like_newest(found: Sequence[_Found]) -> list[_Found]:
    newest_of = {one.storage: one for one in sorted(found, key=lambda one: one.run.started_utc)}
    newest = max(newest_of.values(), key=lambda one: one.run.started_utc)

    def alike(one: _Found) -> bool:
        like = {name: newest_of[one.storage] if name == "devices" else newest for name in _SAME}
        pairs = [(part(one), part(like[name])) for name, part in _SAME.items()]
        return one.kernel == newest.kernel and all(ours == theirs or "" in (ours, theirs) for ours, theirs in pairs)

    return [one for one in found if alike(one)]


def _own_place(one: _Found) -> PoolPlace | None:
    """The place of a measurement on one of several boards. Boards in guest time share one meter, and count as one."""
    if len(one.run.meters) == 1:
        return None
    return next((each for each in one.run.places if each.lab.place == one.measurement.place), None)


def _place(one: _Found) -> str:
    own = _own_place(one)
    if own is not None:
        return f"{own.lab.place} of {own.lab.exporter_names}"
    return f"{one.run.place_names} of {one.run.exporter_names}" if one.run.labs else ""


def _meter(one: _Found) -> str:
    own = _own_place(one)
    if own is not None:
        return own.meter.serial_number if own.meter is not None else ""
    return one.run.meter_names


# What must be the same; "" is not known.
_SAME: Final[dict[str, Callable[[_Found], str]]] = {
    "boards": lambda one: one.measurement.series.board,
    "places": _place,
    "devices": lambda one: one.measurement.series.storage,
    "meters": lambda one: _meter(one) if one.measurement.energy else "",
    "sorts": lambda one: "simulated" if one.measurement.simulated or one.run.simulated else "real",
}


def _filesystems(found: Sequence[_Found]) -> Iterator[FilesystemEvidence]:
    several = len({one.storage for one in found}) > 1

    def series_of(one: _Found) -> SeriesKey:
        """With several storage devices, without the layers: they are in the device's name."""
        series = one.measurement.series
        return replace(series, storage=series.device) if several else series

    labels = series_labels(map(series_of, found))
    groups: dict[str, list[_Found]] = {}
    for one in found:
        label = labels[series_of(one)]
        groups.setdefault(f"{label} on {one.storage}" if several else label, []).append(one)
    for label, group in groups.items():
        slugs = dict.fromkeys(one.measurement.workload.slug for one in group)
        of = {slug: [one for one in group if one.measurement.workload.slug == slug] for slug in slugs}
        yield FilesystemEvidence(
            label=label,
            name=(key := group[0].measurement.series).filesystem,
            unflushed=is_unflushed(key.make_options, key.mount_options),
            rows={slug: _rows(ones) for slug, ones in of.items() if slug not in (POWER_LOSS, FSCK)},
            cuts=tuple(cut for one in of.get(POWER_LOSS, ()) if (cut := _cut(one.measurement)) is not None),
            fsck_s=one_per_boot((one.boot, one.measurement.duration_s) for one in of.get(FSCK, ())),
            storage=group[0].storage,
            flash_mib=max((_flash_mib(one.measurement) for one in group), default=0.0) or None,
        )


def _rows(found: Sequence[_Found]) -> dict[Boot, PartFigures]:
    """One row per boot: of several sizes of a workload the largest, of several measurements of a boot the medians."""
    largest = max(one.measurement.workload.size_bytes for one in found)
    used = [one for one in found if one.measurement.workload.size_bytes == largest]
    boots = dict.fromkeys(one.boot for one in used)
    rows = [(one.boot, _row(one.measurement)) for one in used]
    columns = [one_per_boot((boot, row[i]) for boot, row in rows) for i in range(len(PartFigures._fields))]
    return {boot: PartFigures(*figures) for boot, figures in zip(boots, zip(*columns, strict=True), strict=True)}


def _row(m: Measurement) -> PartFigures:
    """The figures of a fio job per MiB that it moved, those of an operation as they are.

    On a board in guest time they have the projected card in them, which a device in the field has. Single requests are
    not projected: there is no p99.
    """
    units = m.fio.io_bytes / MIB if m.fio else 1.0
    p99_ms = None
    if m.fio and not m.projected:
        fsyncs = isinstance(m.workload, FioWorkload) and m.workload.fsync_every
        p99_ms = m.fio.fsync_ms(99) if fsyncs else m.fio.latency_ms(99)
    gross_mj = m.energy.gross_mj.value if m.energy else None
    seconds = m.window_s
    if m.projected:
        gross_mj, seconds = m.projected.both_mj, m.projected.both_s
    written = None
    if m.counters and units:
        flash = m.counters.flash
        written = (flash.erased_bytes if flash else m.counters.written_bytes) / MIB / units
    row = PartFigures(
        joules=gross_mj / 1e3 / units if gross_mj is not None and units else None,
        uncertainty_j=m.energy.gross_mj.uncertainty / 1e3 / units if m.energy and units else None,
        seconds=seconds / units if seconds is not None and units else None,
        written_mib=written,
        p99_s=None if p99_ms is None else p99_ms / 1e3,
    )
    # What a device writes while it is only read from is not the job's.
    return row if m.workload.only_writes else row._replace(written_mib=0.0)


def _flash_mib(m: Measurement) -> float:
    flash = m.counters.flash if m.counters else None
    return flash.size_bytes / MIB if flash else 0.0


def _cut(m: Measurement) -> PowerCut | None:
    outcome = m.outcome
    if outcome is None:
        return None
    mount_s = m.duration_s if outcome.mounts else None
    return PowerCut(outcome.promised, outcome.broken, outcome.files, not outcome.mounts or outcome.read_only, mount_s)


def _environment(run: Run) -> str:
    words = [word for part in run.command for word in part.split("=", maxsplit=1)]
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "--lg-env"), "")


def only(evidence: AdviceEvidence, filesystems: Sequence[str]) -> AdviceEvidence:
    """The evidence of these filesystems, in this order. Raises ConfigError for one that was not measured."""
    known = {one.label: one for one in evidence.filesystems}
    known |= {name: one for name in filesystems for one in evidence.filesystems if one.name == content_of(name)}
    for name in filesystems:
        if name not in known:
            raise ConfigError.unknown("filesystem of these runs", name, known)
    return replace(evidence, filesystems=tuple(known[name] for name in filesystems))
