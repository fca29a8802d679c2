"""Runs as a Perfetto trace, for ui.perfetto.dev: power as a counter, marks, and labgrid's steps as slices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from fsjoule.host.files import write_file
from fsjoule.report.exports.timeline import Span, Stretch, run_span, stretches_of
from fsjoule.store.reader import LoadedRun

_SEQUENCE: Final = 1


class _Builder:
    """A trace with tracks. Perfetto sorts packets by their times; slices of a track are closed before they are left."""

    def __init__(self) -> None:
        self._trace = TraceProtoBuilder()
        self._tracks = 0

    def track(self, name: str, parent: int = 0, *, unit: str = "") -> int:
        self._tracks += 1
        packet = self._trace.add_packet()
        packet.track_descriptor.uuid = self._tracks
        packet.track_descriptor.name = name
        if parent:
            packet.track_descriptor.parent_uuid = parent
        if unit:
            packet.track_descriptor.counter.unit = CounterDescriptor.UNIT_UNSPECIFIED
            packet.track_descriptor.counter.unit_name = unit
        return self._tracks

    def event(self, track: int, time_ns: int, kind: TrackEvent.Type) -> TrackEvent:
        packet = self._trace.add_packet()
        packet.timestamp = time_ns
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event

    def slices(self, track: int, spans: Sequence[Span]) -> None:
        """Spans in order, each closed before one of its level or of a lower one begins."""
        opened: list[Span] = []
        for span in spans:
            while opened and opened[-1].level >= span.level:
                self._close(track, opened.pop(), at_most_ns=span.start_ns)
            event = self.event(track, span.start_ns, TrackEvent.TYPE_SLICE_BEGIN)
            event.name = span.name
            for name, value in {**span.facts, "error": span.error}.items():
                if value != "":
                    fact = event.debug_annotations.add()
                    fact.name = name
                    fact.string_value = str(value)
            opened.append(span)
        while opened:
            self._close(track, opened.pop())

    def _close(self, track: int, span: Span, at_most_ns: int | None = None) -> None:
        stop_ns = span.stop_ns if at_most_ns is None else min(span.stop_ns, at_most_ns)
        self.event(track, stop_ns, TrackEvent.TYPE_SLICE_END)

    def content(self) -> bytes:
        return self._trace.serialize()


def write_perfetto(file: Path, runs: Sequence[LoadedRun]) -> None:
    """Write Perfetto's protobuf. Raises ResultError if a trace or the record of steps is damaged, OSError."""
    builder = _Builder()
    for loaded in runs:
        stretches = stretches_of(loaded)
        whole = run_span(loaded, stretches)
        kind = " (simulated)" if loaded.run.simulated else ""
        top = builder.track(f"{whole.name}: {loaded.run.plan.suite}{kind}")
        builder.slices(builder.track("steps", top), [whole, *(span for each in stretches for span in each.spans)])
        marks = builder.track("marks, by the meter's clock", top)
        power = builder.track(f"power{kind}", top, unit="W")
        for each in stretches:
            _add_trace(builder, loaded, each, marks, power)
    write_file(file, builder.content())


def _add_trace(builder: _Builder, loaded: LoadedRun, stretch: Stretch, marks: int, power: int) -> None:
    trace = loaded.trace(stretch.measurement.number)
    if trace is None:
        return
    for mark in trace.marks:
        event = builder.event(marks, stretch.offset_ns + 1000 * mark.time_us, TrackEvent.TYPE_INSTANT)
        event.name = f"{mark.text or mark.source.value} ({stretch.measurement.slug})"
    for time_us, watts in zip(trace.times_us.tolist(), trace.power_w.tolist(), strict=True):
        event = builder.event(power, stretch.offset_ns + 1000 * time_us, TrackEvent.TYPE_COUNTER)
        event.double_counter_value = watts
