"""The process of a board in a pool: `python -m fsjoule.runs.bisect.worker FD LAB`."""

from __future__ import annotations

from dataclasses import replace

from fsjoule.errors import FsjouleError
from fsjoule.runs.bisect.boots import BoardBoots
from fsjoule.runs.bisect.pool import PoolAssignment, PoolBoot
from fsjoule.runs.parallel.processes import Link, serve


def _work(link: Link, name: str) -> None:
    assigned: PoolAssignment = link.receive()
    folder = assigned.folder / name
    request = replace(assigned.request, results=folder / "results")
    environment = replace(assigned.environment, virtual_lab=name)
    equipment = (request, environment, assigned.metrics, assigned.select, assigned.folder / "cards")
    with BoardBoots(*equipment, assigned.command) as boots:
        while (wish := link.receive()) is not None:
            try:
                boot = PoolBoot(boots.measure(wish.kernel, wish.seed, profiled=wish.profiled))
            except FsjouleError as error:
                boot = PoolBoot(fault=error)
            link.send(boot)


if __name__ == "__main__":
    # Lines of several boards would be mixed, and what a boot has to tell is in its run folder.
    serve(_work, tells=False)
