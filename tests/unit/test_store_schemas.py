"""The committed JSON Schemas are those of the models, and what is stored follows them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from results_factory import make_run

from fsjoule.store.schemas import MEASUREMENT, RUN, encode, json_schemas, write_json_schemas

_COMMITTED = Path(__file__).parents[2] / "docs" / "schemas"


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
