"""Two labs in turn in one process: each target is of the lab that is up, whichever was before it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from bare_coordinator import bare_coordinator
from labgrid.resource.common import ResourceManager
from labgrid.resource.remote import RemotePlace, RemotePlaceManager

from fsjoule.lab import labgrid_target

ENVIRONMENT = """\
targets:
  main:
    resources:
      RemotePlace:
        name: bench
"""


def test_a_target_is_of_the_lab_that_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = tmp_path / "bench.yaml"
    environment.write_text(ENVIRONMENT)
    for lab in ("first", "second"):
        folder = tmp_path / lab
        folder.mkdir()
        with bare_coordinator(folder, monkeypatch.setenv) as coordinator:
            coordinator.make("bench", lab=lab)
            coordinator.client("acquire")
            with labgrid_target(environment) as target:
                place: Any = target.get_resource(cast("Any", RemotePlace), wait_avail=False)
                manager: Any = RemotePlaceManager.get()
                assert (place.tags, manager.url) == ({"lab": lab}, coordinator.address)
    assert "coordinator became unavailable" not in caplog.text


def test_a_target_beside_another_keeps_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "bench.yaml"
    environment.write_text(ENVIRONMENT)
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator, ExitStack() as first:
        coordinator.make("bench")
        coordinator.client("acquire")
        first.enter_context(labgrid_target(environment))
        manager = RemotePlaceManager.get()
        with labgrid_target(environment):
            pass
        assert RemotePlaceManager.get() is manager
        first.close()
        assert RemotePlaceManager not in ResourceManager.instances
