"""A labgrid place as a LAVA device: the dictionary that the dispatcher reads, and the server's jinja2 form of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from fsjoule.ci.lava.guard import RESULTS_DIR
from fsjoule.ci.lava.helpers import PROMPT
from fsjoule.ci.lava.settings import LavaBoard, remarks

# Names of connections: the board's console and the worker's shell.
CONSOLE: Final = "uart0"
SHELL: Final = "bench"
# LAVA calls power-off while a bench still runs: it ends, its board is switched off, its place released.
_POWER_OFF_S: Final = 100
_BEYOND_WAIT_S: Final = 90
# The board boots quietly: no kernel message is awaited.
_KERNEL_START: Final = ""
_SPAWN_MAXREAD: Final = 4092

_TEMPLATE: Final = """\
{{% extends 'base.jinja2' %}}
{{# The labgrid place {place}; made by: fsjoule lava device {place} --template{without} #}}
{{% set connection_list = {connections} %}}
{{% set connection_commands = {commands} %}}
{{% set connection_tags = {tags} %}}
{{% set hard_reset_command = {hard_reset} %}}
{{% set power_on_command = {power_on} %}}
{{% set power_off_command = {power_off} %}}
{{% set lava_test_results_dir = '{results}' %}}
{{% set kernel_start_message = kernel_start_message | default('') %}}
{{% set action_timeout_power_off = {power_off_s} %}}
{{% set action_timeout_pdu_reboot = {reset_s} %}}
{{% set action_timeout_reset_device = {reset_s} %}}
{{% block body %}}
actions: {actions}
{{% endblock body %}}
"""


def device_dictionary(bench: LavaBoard, results: Path, device_type: str, without: Sequence[str] = ()) -> str:
    """The device in YAML, as lava-run takes it and a server sends it to a worker. Runs go to `results`.

    `without` are remarks: what its board does without.
    """
    patience = int(bench.wait_s) + _BEYOND_WAIT_S
    device = {
        "hostname": bench.place,
        "devicetype": device_type,
        "constants": {
            "posix": {
                "lava_test_sh_cmd": "/bin/sh",
                "lava_test_results_dir": RESULTS_DIR,
                "lava_test_shell_file": "~/.bashrc",
            },
            "default-shell-prompt": PROMPT,
            "kernel-start-message": _KERNEL_START,
            "spawn_maxread": str(_SPAWN_MAXREAD),
            "failure_retry": 1,
            "boot_retry": 1,
        },
        "commands": {
            "connections": {
                name: {"connect": command} | ({"tags": tags} if (tags := _TAGS.get(name)) else {})
                for name, command in _connections(bench, results).items()
            },
            "hard_reset": bench.command("hard-reset"),
            "power_on": bench.command("power-on"),
            "power_off": bench.command("power-off"),
        },
        "parameters": {"pass": None},
        "actions": _actions(bench),
        "timeouts": {
            "actions": {
                "power-off": {"seconds": _POWER_OFF_S},
                "pdu-reboot": {"seconds": patience},
                "reset-device": {"seconds": patience},
            },
            "connections": {"lava-test-shell": {"seconds": 10}},
        },
    }
    return remarks(without) + yaml.safe_dump(device, sort_keys=False, width=1000)


def device_template(bench: LavaBoard, results: Path, without: Sequence[str] = ()) -> str:
    """The device in jinja2, for a server's /etc/lava-server/dispatcher-config/devices/NAME.jinja2."""
    patience = int(bench.wait_s) + _BEYOND_WAIT_S
    connections = _connections(bench, results)
    return _TEMPLATE.format(
        place=bench.place,
        without="".join(f"\n   {line}" for line in without),
        connections=json.dumps(list(connections)),
        # base.jinja2 puts a value into YAML as it is: a quoted string there is a string here with quotes in it.
        commands=json.dumps({name: json.dumps(command) for name, command in connections.items()}),
        tags=json.dumps(_TAGS),
        hard_reset=json.dumps([bench.command("hard-reset")]),
        power_on=json.dumps([bench.command("power-on")]),
        power_off=json.dumps([bench.command("power-off")]),
        results=RESULTS_DIR,
        power_off_s=_POWER_OFF_S,
        reset_s=patience,
        actions=json.dumps(_actions(bench)),
    )


_TAGS: Final = {CONSOLE: ["primary"]}


def _connections(bench: LavaBoard, results: Path) -> dict[str, str]:
    return {CONSOLE: bench.command("connect"), SHELL: bench.command("bench-shell", str(results.resolve()))}


def _actions(bench: LavaBoard) -> dict[str, Any]:
    return {
        "deploy": {
            "connections": {"serial": None},
            "methods": {"overlay": None, "flasher": {"commands": [bench.command("flash", "{IMAGE}")]}},
        },
        "boot": {"connections": {"serial": None}, "methods": {"minimal": None, "new_connection": None}},
    }
