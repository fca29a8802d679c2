"""The web service's page of places, at a real coordinator."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bare_coordinator import bare_coordinator
from results_factory import make_run
from services import imported
from whole_runs import write_whole

from fsjoule.cli.serve import look
from fsjoule.lab.coordinator import connected
from fsjoule.lab.states import set_state
from fsjoule.model import LabFacts
from fsjoule.model.places import PlaceHealth
from fsjoule.report.service.server import serving
from fsjoule.report.service.settings import Settings

_LIMIT_S = 120.0


def get(address: str, path: str, **headers: str) -> tuple[int, str, str]:
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=_LIMIT_S)) as connection:
        connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["ETag"] or ""


def test_the_labs_places_are_shown_with_links_to_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    results = tmp_path / "results"
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        coordinator.make("evk-1", soc="imx6ul")
        began = datetime.fromtimestamp(time.time() - 3600, UTC)
        facts = LabFacts("evk-1", coordinator.address, (), None, "ci@runner")
        run = replace(make_run().run, started_utc=f"{began:%Y-%m-%dT%H:%M:%SZ}", lab=facts)
        write_whole(results, run, ())
        imported(tmp_path / "index.sqlite", results)
        with connected() as there:
            set_state(there, "evk-1", PlaceHealth.GOOD, "the doctor: <all> ok")
        settings = Settings(str(tmp_path / "index.sqlite"), root="/lab", results=(results,), look=look)
        with serving(settings, limit_s=_LIMIT_S) as address:
            status, text, tag = get(address, "/places")
            assert status == 200
            assert "evk-1" in text
            assert "the doctor: &lt;all&gt; ok" in text
            assert f'<a href="/lab/run/{run.run_id}">' in text
            assert 'href="/lab/places" aria-current="page"' in text
            # A look holds for some seconds: the coordinator is not asked for each reader.
            again = [get(address, "/places", If_None_Match=tag)[0] for _ in range(3)]
            assert 304 in again
            document = json.loads(get(address, "/places.json")[1])
            assert document["schema"] == "fsjoule.lab/1"
            assert document["places"][0]["last_runs"][0]["run_id"] == run.run_id
            # Where the server keeps the run is nobody's business.
            assert document["places"][0]["last_runs"][0]["folder"] == ""
            assert str(tmp_path) not in json.dumps(document) + text
        assert said == []
