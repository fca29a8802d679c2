"""A lab that takes its jobs from KernelCI: the command `fsjoule kernelci`."""

from __future__ import annotations

from fsjoule.hooks import Command, hook


@hook
def fsjoule_commands() -> list[Command]:
    return [Command("kernelci", "fsjoule.plugins.kernelci.commands:app", panel="CI")]
