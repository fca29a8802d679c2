"""A lab that takes its jobs from KernelCI: the command `fsjoule kernelci`."""

from __future__ import annotations

from fsjoule.hooks import CliCommand, hook


@hook
def fsjoule_commands() -> list[CliCommand]:
    return [CliCommand("kernelci", "fsjoule.plugins.kernelci.commands:app", panel="CI")]
