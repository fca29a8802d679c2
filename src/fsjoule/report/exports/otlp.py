"""Runs for OpenTelemetry: spans of a run, its measurements and labgrid's steps, and gauges of the figures.

They go to an endpoint (OTLP over HTTP) or into a file of OTLP's JSON, a line for spans and one for metrics, as the
collector's `otlpjsonfile` receiver reads it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from google.protobuf.json_format import MessageToDict
from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from fsjoule.errors import CollectorError
from fsjoule.model.metrics import figure_of, metrics_told
from fsjoule.report.exports.timeline import Span, Stretch, measurement_facts, run_span, stretches_of
from fsjoule.store.reader import LoadedRun

_SCOPE: Final = "fsjoule"
_LIMIT_S: Final = 10.0
_IDS: Final = ("traceId", "spanId", "parentSpanId")


class _Ids(IdGenerator):
    """Numbers from the run's id: a run that is sent twice is the same trace."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self._count = run_id, 0

    def generate_trace_id(self) -> int:
        return int.from_bytes(hashlib.sha256(self._run_id.encode()).digest()[:16])

    def generate_span_id(self) -> int:
        self._count += 1
        return int.from_bytes(hashlib.sha256(f"{self._run_id} {self._count}".encode()).digest()[:8])


def to_otlp_json(runs: Sequence[LoadedRun]) -> str:
    """Two lines of OTLP's JSON encoding. Raises ResultError if the record of a measurement's steps is damaged."""
    spans, metrics = _collected(runs)
    messages = (encode_spans(spans), encode_metrics(metrics))
    documents = (MessageToDict(each, use_integers_for_enums=True) for each in messages)
    return "".join(f"{json.dumps(_with_hex_ids(document))}\n" for document in documents)


def send_otlp(runs: Sequence[LoadedRun], endpoint: str) -> None:
    """Send to a collector: `endpoint` is its address before `/v1/traces`. Raises ResultError, CollectorError."""
    spans, metrics = _collected(runs)
    base = endpoint.rstrip("/")
    traces_sent = OTLPSpanExporter(f"{base}/v1/traces", timeout=_LIMIT_S).export(spans)
    exporter: Any = OTLPMetricExporter(f"{base}/v1/metrics", timeout=_LIMIT_S)
    sent = exporter.export(metrics)
    if traces_sent is not SpanExportResult.SUCCESS or sent is not MetricExportResult.SUCCESS:
        raise CollectorError(
            f"{endpoint} did not take the run's spans and metrics",
            hint="is it a collector's OTLP/HTTP receiver, as http://127.0.0.1:4318?",
        )


def _collected(runs: Sequence[LoadedRun]) -> tuple[list[ReadableSpan], MetricsData]:
    spans: list[ReadableSpan] = []
    resources: list[ResourceMetrics] = []
    for loaded in runs:
        stretches = stretches_of(loaded)
        whole = run_span(loaded, stretches)
        facts = {f"fsjoule.{name}": value for name, value in whole.facts.items() if value != ""}
        resource = Resource({"service.name": "fsjoule", **facts})
        spans += _spans(resource, loaded.run.run_id, [whole, *(span for each in stretches for span in each.spans)])
        scope = ScopeMetrics(InstrumentationScope(_SCOPE), list(_gauges(stretches)), "")
        resources.append(ResourceMetrics(resource, [scope], ""))
    return spans, MetricsData(resources)


def _spans(resource: Resource, run_id: str, spans: Sequence[Span]) -> Iterator[ReadableSpan]:
    tracer = TracerProvider(resource=resource, id_generator=_Ids(run_id), shutdown_on_exit=False).get_tracer(_SCOPE)
    opened: list[tuple[int, api.Span]] = []
    for span in spans:
        opened = [(level, each) for level, each in opened if level < span.level]
        context = api.set_span_in_context(opened[-1][1]) if opened else None
        facts = {f"fsjoule.{name}": value for name, value in span.facts.items() if value != ""}
        made = tracer.start_span(span.name, context, attributes=facts, start_time=span.start_ns)
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(span.stop_ns)
        opened.append((span.level, made))
        yield cast("ReadableSpan", made)


def _gauges(stretches: Sequence[Stretch]) -> Iterator[Metric]:
    points: dict[Any, list[NumberDataPoint]] = {}
    for m in (each.measurement for each in stretches):
        time_ns = next(each.spans[0].stop_ns for each in stretches if each.measurement is m)
        for metric in metrics_told(m):
            if (figure := figure_of(m, metric)) is not None:
                names = {
                    name: value for name, value in measurement_facts(m).items() if isinstance(value, str) and value
                }
                point = NumberDataPoint({**names, "number": m.number}, time_ns, time_ns, figure)
                points.setdefault(metric, []).append(point)
    for metric, found in points.items():
        yield Metric(f"fsjoule.{metric.row.column}", metric.row.name, metric.unit, Gauge(found))


def _with_hex_ids(document: Any) -> Any:  # noqa: ANN401 - JSON
    """OTLP writes ids in hexadecimal, where protobuf's JSON has base64."""
    if isinstance(document, dict):
        items = cast("dict[str, Any]", document).items()
        return {name: base64.b64decode(each).hex() if name in _IDS else _with_hex_ids(each) for name, each in items}
    return [_with_hex_ids(each) for each in cast("list[Any]", document)] if isinstance(document, list) else document
