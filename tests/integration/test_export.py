"""Runs in other tools' formats: each is read back by the tool's own library."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Generator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from pyjls import Reader
from results_factory import MadeRun, make_run
from whole_runs import write_whole

from fsjoule.model import JobFacts, LabStep
from fsjoule.store.schemas import STEPS_FILE, encode_steps

# 2026-03-09T10:00:00Z, when every measurement of the factory's began.
_BEGAN_MS = 1773050400000
_STEPS = (
    LabStep("run_all", "LabgridShell", 1, _BEGAN_MS + 100, 900, {"cmd": "mkfs.ext4 -q /dev/mmcblk1p3"}),
    LabStep("run", "LabgridShell", 1, _BEGAN_MS + 2000, 4000, {"cmd": "fio --exec_prerun=/tmp/fsjoule/start 3 1"}),
    LabStep("run_all", "LabgridShell", 2, _BEGAN_MS + 2000, 3900, error="it took too long"),
)


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run(repeat=1)


@pytest.fixture(scope="module")
def folder(made: MadeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(
        tmp_path_factory.mktemp("export"),
        made.run,
        made.measurements,
        trace=made.traces.get,
        attachments=lambda _: {STEPS_FILE: encode_steps(_STEPS)},
    )


def test_csv_has_each_figure_with_its_uncertainty(
    fsjoule: CommandLine, folder: Path, made: MadeRun, tmp_path: Path
) -> None:
    assert fsjoule("export", folder, "--csv", "run.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [int(row["number"]) for row in rows] == [m.number for m in made.measurements]
    for row, m in zip(rows, made.measurements, strict=True):
        assert row["energy_mj_per_mib"] == ("" if m.energy_mj_per_mib is None else repr(m.energy_mj_per_mib.value))
        assert (row["simulated"], row["valid"]) == ("true", str(m.valid).lower())
    fsjoule("export", folder, "--csv", "samples.csv", "--samples")
    samples = list(csv.DictReader((tmp_path / "samples.csv").read_text().splitlines()))
    assert len(samples) == sum(len(trace.ticks) for trace in made.traces.values())
    assert {row["in_window"] for row in samples} == {"true", "false"}


def test_perfetto_reads_power_marks_and_nested_steps(
    fsjoule: CommandLine, folder: Path, made: MadeRun, tmp_path: Path
) -> None:
    assert fsjoule("export", folder, "--perfetto", "run.pftrace").code == 0
    trace = Trace.FromString((tmp_path / "run.pftrace").read_bytes())
    events = [(packet.timestamp, packet.track_event) for packet in trace.packet if packet.HasField("track_event")]
    power = [event for _, event in events if event.type == TrackEvent.TYPE_COUNTER]
    assert len(power) == sum(len(trace.ticks) for trace in made.traces.values())
    # The start mark lies at the beginning of the step whose command sends it.
    marks = [(time_ns, event.name) for time_ns, event in events if event.type == TrackEvent.TYPE_INSTANT]
    starts = {time_ns for time_ns, name in marks if name.startswith("S")}
    assert starts == {(_BEGAN_MS + 2000) * 1_000_000}
    depth = 0
    for kind in (event.type for _, event in events):
        depth += {TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1}.get(kind, 0)
        assert 0 <= depth <= 4
    assert depth == 0
    assert any("(simulated)" in packet.track_descriptor.name for packet in trace.packet)


def test_joulescope_reads_samples_with_marks(fsjoule: CommandLine, folder: Path, made: MadeRun, tmp_path: Path) -> None:
    assert fsjoule("export", folder, "--jls", "run.jls").code == 0
    reader: Any = Reader(str(tmp_path / "run.jls"))
    signals = {signal.name: signal for signal in reader.signals.values()}
    traces = [made.traces[m.number] for m in made.measurements if m.number in made.traces]
    assert signals["power"].sample_rate == 1000
    assert signals["power"].length == sum(len(trace.ticks) for trace in traces)
    first = traces[0]
    assert reader.fsr(signals["power"].signal_id, 0, len(first.ticks)) == pytest.approx(first.power_w, rel=1e-6)
    noted: list[tuple[int, str]] = []

    def note(at: int, _y: float, _kind: int, _group: int, text: str) -> None:
        noted.append((at, text))

    reader.annotations(signals["power"].signal_id, 0, note)
    assert len(noted) == 2 * len(traces)
    assert noted[0][0] == 1000  # a second of idling
    reader.close()


def test_otlp_json_has_spans_below_the_run_and_gauges(
    fsjoule: CommandLine, folder: Path, made: MadeRun, tmp_path: Path
) -> None:
    assert fsjoule("export", folder, "--otlp", "run.jsonl").code == 0
    spans_line, metrics_line = (tmp_path / "run.jsonl").read_text().splitlines()
    [resource] = json.loads(spans_line)["resourceSpans"]
    spans = [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    assert len(spans) == 1 + len(made.measurements) * (1 + len(_STEPS))
    assert {len(span["traceId"]) for span in spans} == {32}
    [top] = [span for span in spans if "parentSpanId" not in span]
    assert sum(span.get("parentSpanId") == top["spanId"] for span in spans) == len(made.measurements)
    assert {span["status"]["message"] for span in spans if span.get("status", {}).get("code") == 2} >= {
        "it took too long"
    }
    [of_metrics] = json.loads(metrics_line)["resourceMetrics"]
    gauges = {metric["name"]: metric for scope in of_metrics["scopeMetrics"] for metric in scope["metrics"]}
    assert gauges["fsjoule.throughput_mib_per_s"]["unit"] == "MiB/s"
    again = fsjoule("export", folder, "--otlp", "again.jsonl")
    assert again.code == 0
    assert (tmp_path / "again.jsonl").read_text().splitlines()[0] == spans_line


@pytest.fixture
def collector() -> Generator[tuple[str, list[tuple[str, bytes]]]]:
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, content))
            self.send_response(400 if self.path.startswith("/refusing") else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def test_otlp_goes_to_a_collector_or_says_that_it_did_not(
    fsjoule: CommandLine, folder: Path, collector: tuple[str, list[tuple[str, bytes]]]
) -> None:
    url, got = collector
    assert fsjoule("export", folder, "--otlp", url).code == 0
    assert [path for path, _ in got] == ["/v1/traces", "/v1/metrics"]
    [resource] = ExportTraceServiceRequest.FromString(got[0][1]).resource_spans
    assert resource.scope_spans[0].spans[0].name == "run k3v9q2"
    refused = fsjoule("export", folder, "--otlp", f"{url}/refusing")
    assert (refused.code, "did not take the run's spans" in refused.err) == (7, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--samples",), "only --csv has --samples"),
        (("--otlp", "ftp://x/y"), "is no address of a collector"),
        (("--csv", "nowhere/x.csv"), "there is no folder nowhere"),
        (("FOLDER",), "KCIDB's JSON is of one run"),
        (("FOLDER", "--jls", "x.jls"), "the samples of one run"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    fsjoule: CommandLine, folder: Path, words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    done = fsjoule("export", folder, *(str(folder) if word == "FOLDER" else word for word in words))
    assert (done.code, told in done.err) == (2, True), done.err
    assert not list(tmp_path.glob("*.jls"))


def test_a_run_without_traces_has_no_joulescope_file(fsjoule: CommandLine, tmp_path: Path, made: MadeRun) -> None:
    bare = write_whole(tmp_path / "bare", made.run, made.measurements)
    done = fsjoule("export", bare, "--jls", "x.jls")
    assert (done.code, "is missing: the measurement's record says" in done.err) == (2, True)
    pulled = replace(made.run, job=JobFacts("17", "", "", "", pulled=True))
    done = fsjoule("export", write_whole(tmp_path / "pulled", pulled, made.measurements), "--jls", "x.jls")
    assert (done.code, "has no trace" in done.err) == (2, True)
