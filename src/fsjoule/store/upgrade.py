"""Upgrades documents of older run folders to today's schema. Pure functions over parsed JSON.

Before schema 3 a run had one kernel, always Debian's, named as in the recipe. Before schema 4 it had one suite without
parts, and one provision. Before schema 5 a run did not name its lab. Before schema 6 every
meter was fsjoule's own. Before schema 7 a fault did not say which part of the lab had failed. Before schema 8 of a run,
and 5 of a measurement, a run on several places named only the first one.
"""

from __future__ import annotations

from typing import Any, Final

from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA

Document = dict[str, Any]

_OLD_ENERGY: Final = "kept by an older fsjoule: power and the sources of the energy's uncertainty are not shown"


def upgraded_run(old: Document) -> Document:
    """A run of schema 1 to 7 in schema 8. Raises KeyError, TypeError or AttributeError if it is not one."""
    if old["schema"] in ("fsjoule.run/4", "fsjoule.run/5", "fsjoule.run/6", "fsjoule.run/7"):
        return {**old, "schema": RUN_SCHEMA}
    run = dict(old) if old["schema"] == "fsjoule.run/3" else _with_kernels(old)
    plan = dict(run["plan"])
    both = {"suite": plan["suite"], "provision": plan.pop("provision")}
    plan["entries"] = [{**entry, **both} for entry in plan["entries"]]
    plan["size_factors"] = {plan["suite"]: plan.pop("size_factor")}
    return {**run, "plan": plan, "schema": RUN_SCHEMA}


def _with_kernels(old: Document) -> Document:
    run = dict(old)
    plan = dict(run["plan"])
    kernel = plan.pop("kernel")
    plan["kernels"] = [kernel]
    plan["entries"] = [{**entry, "kernel": kernel} for entry in plan["entries"]]
    board, image = run.pop("board", None), run.pop("image", None)
    run["kernels"] = [_kernel(kernel, board, image)]
    run["boards"] = {kernel: board} if board else {}
    run["images"] = [{**image, "root_filesystem": board["root_filesystem"] if board else ""}] if image else []
    return {**run, "plan": plan}


def upgraded_measurement(old: Document) -> Document:
    """A measurement of schema 1 to 4 in schema 5. In the first two only the run names the kernel, so it stays empty.

    Schema 1 lacks the sources of an energy's uncertainty: only the energy per MiB is kept.
    """
    new = {"kernel": "", **old, "schema": MEASUREMENT_SCHEMA}
    if old["schema"] == "fsjoule.measurement/1" and old.get("energy") is not None:
        new["energy"] = None
        new["notes"] = [*old.get("notes", ()), _OLD_ENERGY]
    return new


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
