"""A labgrid place as a LAVA device, a suite as a LAVA job: the command `fsjoule lava`."""

from __future__ import annotations

from fsjoule.hooks import CliCommand, hook


@hook
def fsjoule_commands() -> list[CliCommand]:
    return [CliCommand("lava", "fsjoule.plugins.lava.commands:app", panel="CI")]
