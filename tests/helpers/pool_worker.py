"""A board's process for a pool, without a board: `python -m pool_worker FD LAB`. The kernel's name says what happens.

`dies-on-LAB` ends the process, `fails-on-LAB` is a fault of the lab, `unfit-on-LAB` a kernel that does not work, on the
board of that lab alone; without a lab on every board. `full` is a full disk. Anything else boots in 0.1 s.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from fsjoule.errors import FsjouleError, LabError, StorageError
from fsjoule.model.bisection import KernelBoot
from fsjoule.runs.bisect.pool import PoolAssignment, PoolBoot, Wish
from fsjoule.runs.parallel.processes import Link, serve


def _work(link: Link, name: str) -> None:
    assigned: PoolAssignment = link.receive()
    while (wish := link.receive()) is not None:
        try:
            link.send(PoolBoot(_boot(wish, name, assigned.folder / name)))
        except FsjouleError as error:
            link.send(PoolBoot(fault=error))


def _boot(wish: Wish, lab: str, folder: Path) -> KernelBoot:
    what, _, where = wish.kernel.name.partition("-on-")
    if what == "full":
        raise StorageError("no space left")
    here = where in ("", lab)
    if what == "dies" and here:
        os._exit(9)
    if what == "fails" and here:
        raise LabError(f"the meter of {lab} is silent")
    run = folder / f"{wish.kernel.name}-{wish.seed}"
    run.mkdir(parents=True)
    (run / "made-by").write_text(lab)
    time.sleep(0.1)
    unfit = "Kernel panic" if what == "unfit" and here else None
    return KernelBoot(run.name, run, 0.1, {"throughput": float(wish.seed)}, unfit=unfit)


if __name__ == "__main__":
    serve(_work)
