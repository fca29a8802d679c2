"""Labgrid's facts about a board's lab: its place and its exporters."""

# labgrid ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from labgrid import Target
from labgrid.resource.remote import RemotePlace, RemotePlaceManager

from fsjoule.lab.board_counter import BoardCounterDriver
from fsjoule.lab.meterdriver import METERS
from fsjoule.lab.translate import lab_errors
from fsjoule.model import Exporter, LabFacts, MeterPort


def lab_facts(target: Target) -> LabFacts | None:
    remote = next((each for each in target.resources if isinstance(each, RemotePlace)), None)
    if remote is None:
        return None
    manager: Any = RemotePlaceManager.get()
    session = manager.session
    with lab_errors("asking labgrid for the place's resources"):
        place = session.get_place(remote.name)
        return LabFacts(
            place=place.name,
            coordinator=str(manager.url),
            exporters=_exporters(session, place.acquired_resources),
            meter=_meter_port(target),
            user=f"{session.getuser()}@{session.gethostname()}",
        )


def _exporters(session: Any, paths: Any) -> tuple[Exporter, ...]:  # noqa: ANN401 - labgrid has no types
    """Exporters by name. A resource reached through its exporter names the exporter's computer."""
    hosts: dict[str, str] = {}
    for exporter, group, _cls, name in paths:
        # An exporter that is just ending has no entry any more.
        entry = session.resources.get(exporter, {}).get(group, {}).get(name)
        host = "" if entry is None else str(entry.extra.get("proxy") or "")
        hosts[exporter] = hosts.get(exporter) or host
    return tuple(Exporter(name, hosts[name]) for name in sorted(hosts))


def _meter_port(target: Target) -> MeterPort | None:
    driver = next((each for each in target.drivers if isinstance(each, METERS)), None)
    if driver is None:
        return None
    if isinstance(driver, BoardCounterDriver):
        return MeterPort(type(driver).__name__, "", str(target.get_driver("BoardStrategy").mark_device))
    port: Any = getattr(driver, "port", None)
    if port is None:
        kind, address = driver.where
        return MeterPort(kind, "", address)
    host, number = getattr(port, "host", None), getattr(port, "port", None)
    if host is None:
        return MeterPort(type(port).__name__, "", str(number or ""))
    path = (getattr(port, "extra", None) or {}).get("path") or ""
    return MeterPort(type(port).__name__, f"{host}:{number}", str(path))
