"""A timeline for people: whose the energy was, in tables, as JSON, as a page, and as a trace for Perfetto.

The trace is in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import Any, Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.meter.energy.timeline import EnergyShare, Timeline, by_function
from fsjoule.model import MIB, Measurement, Trace
from fsjoule.model.kernel_events import IDLE, TRACED, Call, Request, RequestKind
from fsjoule.model.labels import counted
from fsjoule.report.explanation.words import module_text
from fsjoule.report.numbers import percent
from fsjoule.report.table import Cell, Column, Table, word
from fsjoule.report.template import marked_up, render
from fsjoule.report.terminal import footnote, room_of, table_lines
from fsjoule.report.timeline_chart import timeline_chart
from fsjoule.verdicts.explanation.functions import Function

# Drawn twice, for a desk and for a phone, so that letters keep their size.
_WIDE: Final = 860
_NARROW: Final = 270
_SHOWN: Final = 10
_NAMED: Final = 3
SCHEMA: Final = "fsjoule.timeline/1"
_METHOD: Final = (
    "A thread has the energy of the whole board while it ran; several at once have equal parts. Threads that share a "
    "reading of the meter have it by time: their energy is from `least` to `most`, if the board's power never left the "
    "range that the meter saw."
)
_FUNCTIONS: Final = (
    "Functions have the energy of the time in which a thread ran, in proportion to the instructions that they executed."
)


@dataclass(frozen=True, slots=True)
class StorageUse:
    """The requests of one kind in a window. Times are in seconds, `under_way_s` that in which at least one was."""

    kind: RequestKind
    count: int
    size_bytes: int
    median_s: float
    longest_s: float
    under_way_s: float


@dataclass(frozen=True, eq=False)
class TimelineView:
    """A measurement with its timeline, and the time of each function in ns if a profile was kept."""

    measurement: Measurement
    trace: Trace
    timeline: Timeline
    functions: Mapping[Function, int] | None

    @property
    def title(self) -> str:
        return f"{self.measurement.series.filesystem_title} {self.measurement.workload.label}"

    @property
    def doubt(self) -> str:
        """Why the whole measurement is in doubt, apart from its events; empty if it is not."""
        return "; ".join(why for why in self.measurement.invalid_reasons if why != TRACED)

    @property
    def seconds(self) -> float:
        return self.timeline.window.duration_s

    def shares(self) -> dict[str, EnergyShare]:
        return self.timeline.power.shares()

    def energies(self) -> dict[Function, float]:
        """The energy of each function in mJ; empty without a profile."""
        running_mj = sum(each.energy_mj for name, each in self.shares().items() if name != IDLE)
        return by_function(running_mj, self.functions or {})

    def storage(self) -> list[StorageUse]:
        """What the storage did in the window, by kind."""
        return [_used(kind, some) for kind in RequestKind if (some := [r for r in self.requests() if r.kind is kind])]

    def requests(self) -> list[Request]:
        """The requests that were under way in the window."""
        clock, window = self.timeline.clock, self.timeline.window
        return [
            each
            for each in self.timeline.events.requests
            if clock.us(each.end_s) > window.start_us and clock.us(each.begin_s) < window.stop_us
        ]

    def conserved(self) -> str:
        """Whether the parts are the whole."""
        energy, sum_mj = self.measurement.energy, self.timeline.power.energy_mj
        if energy is None:
            return f"All threads together have {sum_mj:.2f} mJ."
        whole = energy.gross_mj
        apart = abs(sum_mj - whole.value) > whole.uncertainty
        said = ": the parts are more than its uncertainty off, do not trust them." if apart else "."
        window = f"{whole.value:.2f} ± {whole.uncertainty:.2f} mJ"
        return f"All threads together have {sum_mj:.2f} mJ, the window {window}{said}"


def _used(kind: RequestKind, requests: Sequence[Request]) -> StorageUse:
    times = [each.end_s - each.begin_s for each in requests]
    under_way = end = 0.0
    for each in sorted(requests, key=lambda request: request.begin_s):
        under_way += max(0.0, each.end_s - max(end, each.begin_s))
        end = max(end, each.end_s)
    size_bytes = sum(each.size_bytes for each in requests)
    return StorageUse(kind, len(requests), size_bytes, median(times), max(times), under_way)


def headline(view: TimelineView) -> str:
    """The answer in a sentence."""
    shares, energy = view.shares(), view.measurement.energy
    whole = view.timeline.power.energy_mj
    used = f"{whole:.1f} mJ" if energy is None else f"{whole:.1f} ± {energy.gross_mj.uncertainty:.1f} mJ"
    first = [f"{name} {percent(each.energy_mj / whole)}" for name, each in list(shares.items())[:_NAMED] if whole]
    return f"{view.title} used {used} in {view.seconds:.3f} s, with tracing: {', '.join(first)}"


def storage_line(view: TimelineView) -> str:
    """What the storage did, in a sentence."""
    kinds = [
        f"{counted(use.count, use.kind.value, 'flushes' if use.kind is RequestKind.FLUSH else '')}"
        + (f" ({use.size_bytes / MIB:.1f} MiB)" if use.size_bytes else "")
        for use in view.storage()
    ]
    if not kinds:
        return "the storage had no request in the window"
    under_way = _used(RequestKind.READ, view.requests()).under_way_s / view.seconds
    return f"{', '.join(kinds)}; one was under way for {percent(min(under_way, 1.0))} of the time"


def threads_table(view: TimelineView, *, most: int | None = _SHOWN) -> Table:
    """One row a thread, by energy."""
    shares, whole = view.shares(), view.timeline.power.energy_mj or 1.0
    shown = list(shares.items())[:most]
    columns = (
        *(Column("thread", is_figure=False, head=True), Column("energy", "mJ"), Column("share")),
        *(Column("least", "mJ", optional=True), Column("most", "mJ", optional=True)),
        *(Column("time", "ms"), Column("mean power", "W")),
    )
    rows = (
        (
            *(Cell(name), Cell(f"{each.energy_mj:.2f}"), Cell(percent(each.energy_mj / whole))),
            *(Cell(f"{each.least_mj:.2f}"), Cell(f"{each.most_mj:.2f}")),
            *(Cell(f"{1e3 * each.seconds:.2f}"), Cell(f"{1e-3 * each.energy_mj / each.seconds:.3f}")),
        )
        for name, each in shown
    )
    title = f"{len(shown)} of {counted(len(shares), 'thread')}, by energy"
    return Table(title, view.measurement.simulated, columns, tuple(rows))


def functions_table(view: TimelineView, *, most: int | None = _SHOWN) -> Table | None:
    """One row a function, by energy; None without a profile."""
    energies, whole = view.energies(), view.timeline.power.energy_mj or 1.0
    if not energies:
        return None
    shown = list(energies.items())[:most]
    columns = (Column("function", is_figure=False, head=True), word("module"), Column("energy", "mJ"), Column("share"))
    rows = (
        (Cell(each.name), Cell(module_text(each.module)), Cell(f"{mj:.2f}"), Cell(percent(mj / whole)))
        for each, mj in shown
    )
    title = f"{len(shown)} of {counted(len(energies), 'function')}, by energy"
    return Table(title, view.measurement.simulated, columns, tuple(rows))


def storage_table(view: TimelineView) -> Table | None:
    """One row a kind of request; None if there was none."""
    columns = (
        *(Column("requests", is_figure=False, head=True), Column("count"), Column("size", "MiB")),
        *(Column("median", "ms"), Column("longest", "ms"), Column("under way", "ms")),
    )
    rows = tuple(
        (
            *(Cell(each.kind.value), Cell(str(each.count)), Cell(f"{each.size_bytes / MIB:.2f}")),
            *(Cell(f"{1e3 * each_s:.3f}") for each_s in (each.median_s, each.longest_s, each.under_way_s)),
        )
        for each in view.storage()
    )
    return Table("Requests to the storage", view.measurement.simulated, columns, rows) if rows else None


def notes(view: TimelineView) -> list[str]:
    """How to read it, and what is not known."""
    events, clock = view.timeline.events, view.timeline.clock
    said = [view.conserved(), _METHOD]
    said += [_FUNCTIONS] if view.functions else []
    parts = (
        f"{counted(sum(events.kinds.values()), 'event')}",
        f"the board's clock was put on the meter's by two marks, and runs {clock.fast_ppm:+.0f} ppm",
        *([f"{events.dropped} dropped at the end"] if events.dropped else []),
        *([f"{events.unfinished} requests without an end are left out"] if events.unfinished else []),
    )
    return [*said, f"{'; '.join(parts)}."]


def print_timeline(console: Console, view: TimelineView, *, everything: bool = False, wide: bool = False) -> None:
    """Print the answer and the tables."""
    for renderable in _renderables(view, room_of(console, wide=wide), everything=everything):
        console.print(renderable, crop=False)


def _renderables(view: TimelineView, room: int | None, *, everything: bool) -> Iterator[ConsoleRenderable]:
    most = None if everything else _SHOWN
    yield Text(headline(view), style="bold")
    if view.doubt:
        yield Text(f"IN DOUBT: {view.doubt}", style="yellow")
    yield Text(storage_line(view))
    for table in (threads_table(view, most=most), functions_table(view, most=most), storage_table(view)):
        if table is not None:
            yield from table_lines(table, room)
    for note in notes(view):
        yield footnote(note)


def to_document(views: Sequence[TimelineView], folder: str) -> dict[str, object]:
    """All that was found; times in s, energies in mJ."""
    return {"schema": SCHEMA, "run": folder, "timelines": [_document(each) for each in views]}


def _document(view: TimelineView) -> dict[str, object]:
    return {
        "headline": headline(view),
        "doubt": view.doubt,
        "number": view.measurement.number,
        "filesystem": view.measurement.series.filesystem_title,
        "workload": view.measurement.workload.label,
        "kernel": view.measurement.kernel,
        "simulated": view.measurement.simulated,
        "seconds": view.seconds,
        "energy_mj": view.timeline.power.energy_mj,
        "window": None if view.measurement.energy is None else asdict(view.measurement.energy.gross_mj),
        "threads": {name: asdict(each) for name, each in view.shares().items()},
        "functions": [{"name": f.name, "module": f.module, "energy_mj": mj} for f, mj in view.energies().items()],
        "requests": [asdict(each) for each in view.storage()],
        "clock_ppm": view.timeline.clock.fast_ppm,
        "events": dict(view.timeline.events.kinds),
        "dropped": view.timeline.events.dropped,
    }


def render_page(views: Sequence[TimelineView]) -> str:
    """The page as HTML: for each measurement the answer, the picture and the tables."""
    return render(
        "timeline.html.j2",
        version=version("fsjoule"),
        simulated=any(each.measurement.simulated for each in views),
        title=views[0].title if len(views) == 1 else f"{len(views)} timelines",
        timelines=[
            {
                "title": each.title,
                "headline": headline(each),
                "doubt": each.doubt,
                "storage": storage_line(each),
                "charts": marked_up(
                    [
                        timeline_chart(each.timeline, each.title, width, simulated=each.measurement.simulated)
                        for width in (_WIDE, _NARROW)
                    ]
                ),
                "tables": [
                    table
                    for table in (threads_table(each), functions_table(each), storage_table(each))
                    if table is not None
                ],
                "notes": notes(each),
            }
            for each in views
        ],
    )


_PROCESSES: Final = ("meter", "processors", "storage", "calls")


def to_trace_events(views: Sequence[TimelineView]) -> dict[str, object]:
    """The whole timelines for Perfetto, below each other; times from the first reading of each."""
    events = [event for i, each in enumerate(views) for event in _trace_events(each, 1 + i * len(_PROCESSES))]
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": {"fsjoule": version("fsjoule")}}


def _trace_events(view: TimelineView, first: int) -> Iterator[dict[str, Any]]:
    """One timeline; its processes have the numbers from `first` on."""
    trace, clock, events, window = view.trace, view.timeline.clock, view.timeline.events, view.timeline.window
    zero_us = float(trace.times_us[0])
    meter, processors, storage, calls = (first + i for i in range(len(_PROCESSES)))

    def ns(time_s: float) -> int:
        return max(0, round(1e3 * (clock.us(time_s) - zero_us)))

    for pid, name in zip((meter, processors, storage, calls), _PROCESSES, strict=True):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{view.title}: {name}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for time_us, watts in zip(trace.times_us.tolist(), trace.power_w.tolist(), strict=True):
        yield {"ph": "C", "name": "power", "pid": meter, "ts": time_us - zero_us, "args": {"W": round(watts, 5)}}
    for name, time_us in (("start", window.start_us), ("stop", window.stop_us)):
        yield {"ph": "i", "s": "p", "name": name, "pid": meter, "tid": meter, "ts": round(time_us - zero_us, 3)}
    for frequency in events.frequencies:
        own = {
            "name": f"frequency of processor {frequency.cpu}",
            "pid": processors,
            "args": {"MHz": frequency.hz / 1e6},
        }
        yield {"ph": "C", **own, "ts": ns(frequency.time_s) / 1e3}
    begun: dict[int, tuple[int, str]] = {}
    for switch in events.switches:
        tid, now = processors * 1000 + switch.cpu, ns(switch.time_s)
        if switch.cpu not in begun:
            yield {"ph": "M", "name": "thread_name", "pid": processors, "tid": tid, "args": {"name": f"{switch.cpu}"}}
        else:
            begin, thread = begun[switch.cpu]
            if now > begin and thread != IDLE:
                own = {"name": thread, "pid": processors, "tid": tid}
                yield {"ph": "X", **own, "ts": begin / 1e3, "dur": (now - begin) / 1e3}
        begun[switch.cpu] = now, switch.thread
    spans: list[tuple[int, Request | Call, str, dict[str, Any]]] = [
        *((storage, each, each.kind.value, asdict(each)) for each in events.requests),
        *((calls, each, f"{each.name} of {each.thread}", {}) for each in events.calls),
    ]
    for i, (pid, each, name, about) in enumerate(spans):
        own = {"cat": _PROCESSES[pid - first], "name": name, "pid": pid, "tid": pid, "id2": {"local": hex(i)}}
        yield {"ph": "b", **own, "ts": ns(each.begin_s) / 1e3, "args": about}
        yield {"ph": "e", **own, "ts": ns(each.end_s) / 1e3}
