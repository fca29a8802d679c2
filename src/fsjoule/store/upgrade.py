"""Documents of older run folders in today's shape. Pure functions over parsed JSON.

Schema 1 knew one kernel a run, always one of Debian's, and called it by its name in the recipe.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def upgraded_run(old: Document) -> Document:
    """A `fsjoule.run/1` as a `fsjoule.run/2`. Raises KeyError, TypeError or AttributeError if it is not one."""
    run = dict(old)
    plan = dict(run["plan"])
    kernel = plan.pop("kernel")
    plan["kernels"] = [kernel]
    plan["entries"] = [{**entry, "kernel": kernel} for entry in plan["entries"]]
    board, image = run.pop("board", None), run.pop("image", None)
    run["kernels"] = [_kernel(kernel, board, image)]
    run["boards"] = {kernel: board} if board else {}
    run["images"] = [{**image, "root_filesystem": board["root_filesystem"] if board else ""}] if image else []
    return {**run, "plan": plan, "schema": "fsjoule.run/2"}


def upgraded_measurement(old: Document) -> Document:
    """A `fsjoule.measurement/1` as a `fsjoule.measurement/2`; only its run knows the kernel, so that stays empty."""
    return {**old, "kernel": "", "schema": "fsjoule.measurement/2"}


def _kernel(name: str, board: Document | None, image: Document | None) -> Document:
    checksums: dict[str, str] = image["checksums"] if image else {}
    return {
        "label": name,
        "asked": name,
        "origin": "debian",
        "release": board["kernel_release"] if board else "",
        "digest": "",
        "package": image["kernel_package"] if image else "",
        "checksums": {file: checksum for file, checksum in checksums.items() if file.endswith(".deb")},
    }
