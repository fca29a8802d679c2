"""The committed JSON Schemas are those of the models, and what is stored follows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
from results_factory import LAB, METER, make_run, make_trace

from fsjoule.model import CurrentMonitor, Ina219Info, PoolPlace
from fsjoule.model.instrument_file import InstrumentFile
from fsjoule.store.schemas import MEASUREMENT, RUN, decode, encode, json_schemas, write_json_schemas
from fsjoule.store.traces import encode_trace

_COMMITTED = Path(__file__).parents[2] / "docs" / "schemas"
# What fsjoule.run/8 and fsjoule.trace/2 told of a meter when they got their names.
_FIRST_TOLD = {
    "protocol",
    "firmware",
    "serial_number",
    "rate_hz",
    "shunt_uohm",
    "shunt_range_mv",
    "simulated",
    "adc_config",
    "calibration",
    "shunt_lsb_uv",
    "bus_lsb_mv",
}


@pytest.mark.parametrize("name", ["run.json", "measurement.json"])
def test_the_committed_schema_is_current(name: str) -> None:
    committed = (_COMMITTED / name).read_text(encoding="utf-8")
    assert committed == json_schemas()[name], "run: fsjoule schema docs/schemas"


def test_what_is_written_follows_the_schemas(tmp_path: Path) -> None:
    run_schema, measurement_schema = (json.loads(path.read_text()) for path in write_json_schemas(tmp_path))
    made = make_run(repeat=1)
    jsonschema.Draft202012Validator.check_schema(run_schema)
    jsonschema.Draft202012Validator.check_schema(measurement_schema)
    jsonschema.validate(json.loads(encode(RUN, made.run, "run")), run_schema)
    for measurement in made.measurements:
        jsonschema.validate(json.loads(encode(MEASUREMENT, measurement, "measurement")), measurement_schema)


@pytest.mark.parametrize(
    ("meter", "later"),
    [
        (METER, set[str]()),
        (replace(METER, chip=CurrentMonitor.INA228), {"chip"}),
        (replace(METER, file=InstrumentFile(serial_number="T1")), {"file"}),
    ],
    ids=["INA219", "INA228", "instrument file"],
)
def test_a_version_that_knows_one_chip_reads_an_ina219(meter: Ina219Info, later: set[str], tmp_path: Path) -> None:
    """It refuses a field that it does not know, so there is none unless it must refuse the document."""
    run = replace(make_run(repeat=1).run, meter=meter, places=(PoolPlace(LAB, meter), PoolPlace(LAB, METER)))
    content = encode(RUN, run, "run")
    document = json.loads(content)
    assert set(document["meter"]) == set(document["places"][0]["meter"]) == _FIRST_TOLD | later
    assert set(document["places"][1]["meter"]) == _FIRST_TOLD
    assert decode(RUN, content, document["schema"], tmp_path) == run
    (tmp_path / "trace.parquet").write_bytes(encode_trace(replace(make_trace(0.1, 1.0, seed=1, mark="1"), info=meter)))
    told = pq.read_metadata(tmp_path / "trace.parquet").metadata[b"fsjoule.trace"]
    assert set(json.loads(told)["info"]) == _FIRST_TOLD | later
