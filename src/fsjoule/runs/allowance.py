"""What somebody may spend on measuring, over all of their questions: boots, written bytes, and false alarms.

What was spent is in a file, so that neither a restart nor another process begins anew. A question takes the most that
it can cost before it begins, and gives back what it did not use when it has ended; one that was killed gives back
nothing.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from fsjoule import kernels, lab
from fsjoule.bench.boots import boot_key
from fsjoule.errors import ConfigError, ResultError, not_written
from fsjoule.host.files import write_file
from fsjoule.host.locks import locked
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import plan_of
from fsjoule.runs.request import choose

SCHEMA: Final = "fsjoule.allowance/1"
# A measurement is tried once more after a transient fault of the lab, in another boot.
TRIES: Final = 2
# Faster than what a board writes to: for work that is bounded by its time alone.
_FASTEST_MIB_PER_S: Final = 500.0
_LOCK_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Boots, bytes that workloads write, and the probability of a false alarm; of errors a union bound counts."""

    boots: int = 0
    written_bytes: int = 0
    alpha: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.boots + other.boots, self.written_bytes + other.written_bytes, math.fsum((self.alpha, other.alpha))
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + Cost(-other.boots, -other.written_bytes, -other.alpha)

    def fits(self, limit: Cost) -> bool:
        # Ten tenths are a whole.
        return (
            self.boots <= limit.boots
            and self.written_bytes <= limit.written_bytes
            and self.alpha <= limit.alpha * (1 + 1e-9)
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits, and the file of what was spent; it is made by the first question."""

    file: Path
    limit: Cost

    def left(self) -> dict[str, object]:
        """What is spent and left, for people. Raises ResultError if the file is damaged."""
        with self._opened() as spent:
            return {"limit": asdict(self.limit), "spent": asdict(spent), "left": asdict(self.limit - spent)}

    def take(self, cost: Cost) -> None:
        """Spend before a question begins. Raises ConfigError, with what is left, if it does not fit."""
        with self._opened() as spent:
            if not (spent + cost).fits(self.limit):
                raise ConfigError(
                    f"this may cost {_told(cost)}, and {_told(self.limit - spent)} are left",
                    hint="ask for less: fewer repetitions or filesystems; only a person may raise the limits",
                )
            self._write(spent + cost)

    def give_back(self, taken: Cost, used: Cost) -> None:
        """What a question has taken and not used; never more than it took, and no error rate."""
        rest = Cost(max(taken.boots - used.boots, 0), max(taken.written_bytes - used.written_bytes, 0))
        with self._opened() as spent:
            self._write(spent - rest)

    @contextmanager
    def _opened(self) -> Generator[Cost]:
        """What was spent, with the file locked against other processes."""
        until_s = time.monotonic() + _LOCK_LIMIT_S
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            while (lock := locked(self.file.with_name(f"{self.file.name}.lock"))) is None:
                if time.monotonic() > until_s:
                    raise ConfigError(f"{self.file} is in use by another process", hint="try again")
                time.sleep(0.05)
        except OSError as error:
            raise not_written(f"{self.file} cannot be locked", error, hint="name another --budget-file") from error
        try:
            yield self._read()
        finally:
            os.close(lock)

    def _read(self) -> Cost:
        try:
            document = cast("dict[str, Any]", json.loads(self.file.read_text(encoding="utf-8")))
            spent = Cost(**document["spent"])
            whole = {type(document["spent"][name]) for name in ("boots", "written_bytes")} == {int}
            if document["schema"] != SCHEMA or not whole or min(spent.boots, spent.written_bytes, spent.alpha) < 0:
                raise ValueError("it is not as it was written")  # noqa: TRY301
        except FileNotFoundError:
            return Cost()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultError(
                f"{self.file} cannot be read: {error}", hint="nothing is measured until a person has put it right"
            ) from error
        return spent

    def _write(self, spent: Cost) -> None:
        document = {"schema": SCHEMA, "spent": asdict(spent)}
        try:
            write_file(self.file, json.dumps(document, indent=2).encode() + b"\n")
        except OSError as error:
            raise not_written(f"{self.file} cannot be written", error, hint="name another --budget-file") from error


def most_of_bench(options: BenchOptions, lg_env: Path, *, pair: tuple[str, str] | None = None) -> Cost:
    """The most that a bench can cost: each boot twice, and what it writes. Raises ConfigError for a wrong word."""
    environment = lab.read_environment(lg_env)
    profile = environment.profile
    request = choose(options, environment, pair=pair)
    plan = plan_of(request, profile, kernels.kernel_labels(request.kernels, profile.recipe))
    written = sum(entry.workload.written_bytes(_FASTEST_MIB_PER_S) for entry in plan.entries)
    return Cost(TRIES * len(set(map(boot_key, plan.entries))), TRIES * written)


def _told(cost: Cost) -> str:
    return f"{cost.boots} boots, {cost.written_bytes / 2**20:.0f} MiB written and an error rate of {cost.alpha:g}"
