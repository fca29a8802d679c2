"""Environment files as people have them beside their own labgrid tests: what labgrid takes, fsjoule takes as well.

Each is read as `fsjoule bench` reads it, and then by labgrid, which makes the board's target from it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from labgrid import Environment
from labgrid.factory import target_factory

from fsjoule.errors import ConfigError
from fsjoule.lab import EnvironmentFile, let_labgrid_run, read_environment

_RELAY = """
import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.protocol import PowerProtocol, ResetProtocol

@target_factory.reg_driver
@attr.s(eq=False)
class RelayPowerDriver(Driver, PowerProtocol):
    relay = attr.ib(default=1, validator=attr.validators.instance_of(int))
    invert = attr.ib(default=False)

    @invert.validator
    def _only_some(self, _attribute, value):
        assert not value or self.relay < 8

    @Driver.check_active
    def on(self): pass
    @Driver.check_active
    def off(self): pass
    @Driver.check_active
    def cycle(self): pass
"""
_USB_HUB = """
import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.protocol import PowerProtocol
from labgrid.resource import Resource

@target_factory.reg_resource
@attr.s(eq=False)
class HubPort(Resource):
    index = attr.ib()

@target_factory.reg_driver
@attr.s(eq=False)
class HubDriver(Driver, PowerProtocol):
    bindings = {"port": "HubPort", "relay": {"RelayPowerDriver", None}}
    def on(self): pass
    def off(self): pass
    def cycle(self): pass
"""
_STRATEGY = """
import attr
from labgrid.factory import target_factory
from fsjoule.lab import BoardStrategy

@target_factory.reg_driver
@attr.s(eq=False)
class FarmStrategy(BoardStrategy):
    rack = attr.ib(default="")
"""
_SERIAL = "RawSerialPort: {port: /dev/ttyUSB0, speed: 115200}"
_OUTLET = "NetworkPowerPort: {model: rest, host: 'http://outlet/{index}', index: 1}"
_SHELL = "ShellDriver: {login_prompt: 'login: ', username: root, prompt: '# '}"
_BOARD = (
    "{board: mine, recipe: imx6ul-evk, simulated: false, mark_device: /dev/ttymxc1, card_device: mmcblk1, "
    "scratch_device: /dev/mmcblk1p3}"
)
_REST = f"""
      SerialDriver: {{}}
      {_SHELL}
      KeptCard: {{}}
      BoardStrategy: {_BOARD}
"""
_OWN_RELAY = f"""
    resources:
      {_SERIAL}
    drivers:
      RelayPowerDriver: {{relay: 3, invert: true}}{_REST}"""
_OUTLETS = f"""
    resources:
      {_SERIAL}
      {_OUTLET}
    drivers:
      NetworkPowerDriver: {{}}{_REST}"""

_FILES = {
    "a file beside it": f"imports: [fsjoule.lab, relay.py]\ntargets:\n  main:{_OWN_RELAY}",
    "a file elsewhere": f"imports: [fsjoule.lab, ../site/hub/../relay.py]\ntargets:\n  main:{_OWN_RELAY}",
    "a file in a folder of its own": f"imports: [fsjoule.lab, ./hub/relay.py]\ntargets:\n  main:{_OWN_RELAY}",
    "a file by a variable": f"imports: [fsjoule.lab, $SITE/relay.py]\ntargets:\n  main:{_OWN_RELAY}",
    "files that need each other": f"""
imports: [fsjoule.lab, relay.py, hub.py]
targets:
  main:
    resources:
      HubPort: {{index: 4}}
      {_SERIAL}
    drivers:
      HubDriver: {{}}{_REST}""",
    "a strategy of one's own": f"""
imports: [strategy.py]
targets:
  main:{_OUTLETS.replace("BoardStrategy: {", "FarmStrategy: {rack: A7, ")}""",
    "a target of another name": f"imports: [fsjoule.lab]\ntargets:\n  dut:{_OUTLETS}",
    "a host beside the board": f"""
imports: [fsjoule.lab]
targets:
  client:
    resources:
      RemotePlace: {{name: client-of-the-farm}}
    drivers:
      SSHDriver: {{}}
  main:{_OUTLETS}""",
    "drivers in a list, with names": f"""
imports: [fsjoule.lab]
targets:
  main:
    resources:
    - {_SERIAL}
    - cls: NetworkPowerPort
      name: outlet
      model: rest
      host: 'http://outlet/{{index}}'
      index: 1
    drivers:
    - cls: NetworkPowerDriver
      name: power
      bindings: {{port: outlet}}
    - SerialDriver:
        name: console
    - {_SHELL}
    - KeptCard: {{}}
    - BoardStrategy: {_BOARD}
""",
    "templates": f"""
imports: [fsjoule.lab]
images:
  card: !template "$BASE/../images/$LG_BUILD/card.img"
targets:
  main:{
        _OUTLETS.replace("board: mine", 'board: !template "mine-$LG_BUILD"').replace("'# '", '!template "$LG_PROMPT"')
    }""",
    "anchors": f"""
imports: [fsjoule.lab]
login: &login {{login_prompt: 'login: ', username: root, prompt: '# '}}
targets:
  main:{_OUTLETS.replace(_SHELL, "ShellDriver: *login")}""",
    "features, tools, paths and options": f"""
imports: [fsjoule.lab]
features: [ethernet]
tools: {{dfu-util: /opt/bin/dfu-util}}
paths: {{kernel: ../linux}}
options: {{coordinator_address: 'farm:20408'}}
targets:
  main:
    features: [emmc]
    options: {{}}{_OUTLETS}""",
    "drivers that no bench needs": f"""
imports: [fsjoule.lab]
targets:
  main:{_OUTLETS}      UBootDriver: {{prompt: '=> '}}
      ManualSwitchDriver: {{name: jumper}}
""",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder `lab` for the environment file, and one with drivers; labgrid's register is as before afterwards."""
    for folder, names in (("lab", ("relay", "hub", "strategy")), ("site", ("relay",))):
        (tmp_path / folder / "hub").mkdir(parents=True)
        for name in (*names, "hub/relay"):
            text = {"hub": _USB_HUB, "strategy": _STRATEGY}.get(name, _RELAY)
            (tmp_path / folder / f"{name}.py").write_text(text)
    for name, value in {"SITE": str(tmp_path / "site"), "LG_BUILD": "r7", "LG_PROMPT": "r7# "}.items():
        monkeypatch.setenv(name, value)
    registers: Any = target_factory
    before = [dict(each) for each in (registers.drivers, registers.resources, registers.all_classes)]
    yield tmp_path / "lab"
    registers.drivers, registers.resources, registers.all_classes = before
    for name in ("relay", "hub", "strategy"):
        sys.modules.pop(name, None)


def _taken(file: Path) -> EnvironmentFile:
    read = read_environment(file)
    let_labgrid_run(read.imports)
    labgrids: Any = cast("Any", Environment)(config_file=str(file)).get_target(read.target)
    assert {type(each).__name__ for each in labgrids.drivers} == {each.cls for each in read.drivers}
    return read


@pytest.mark.parametrize("structure", _FILES)
def test_what_labgrid_takes_a_bench_takes(site: Path, structure: str) -> None:
    file = site / "env.yaml"
    file.write_text(_FILES[structure])
    read = _taken(file)
    assert _taken(file) == read, "several parts of one command read it"
    assert (read.does_without[0], read.has_meter) == ("without a meter: throughput only, no energy", False)
    assert read.target == ("dut" if "another name" in structure else "main")
    assert read.alone == ("beside" not in structure or structure == "a file beside it")
    if structure == "templates":
        assert read.login is not None
        assert (read.profile.name, read.login.prompt) == ("mine-r7", "r7# ")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("relay.py]", "rleay.py]", "'rleay.py' cannot be imported: .*No such file"),
        ("relay.py]", "broken.py]", "'broken.py' cannot be imported: .*line 1"),
        ("relay.py]", "ends.py]", "'ends.py' cannot be imported: it ends the process"),
        ("relay.py]", "relay.py, relay.py]", "'relay.py' is imported twice"),
        ("relay: 3", "relay: three", "RelayPowerDriver: relay: 'three' is wrong"),
        ("relay: 3", "relais: 3", "RelayPowerDriver has no argument 'relais'"),
        ("RelayPowerDriver", "RelaisPowerDriver", "unknown driver class 'RelaisPowerDriver'"),
        ("board: mine", "board: !template $LG_NOWHERE", "the template '.LG_NOWHERE' is wrong: 'LG_NOWHERE'"),
    ],
)
def test_what_is_wrong_with_such_a_file_is_told_with_its_line(site: Path, old: str, new: str, what: str) -> None:
    (site / "broken.py").write_text("def\n")
    (site / "ends.py").write_text("raise SystemExit(3)\n")
    file = site / "env.yaml"
    file.write_text(_FILES["a file beside it"].replace(old, new))
    with pytest.raises(ConfigError, match=what) as caught:
        read_environment(file)
    assert caught.value.line is not None
    assert os.fspath(file) in caught.value.what
