"""A suite as a LAVA job: a shell on the worker, in which pytest measures as it does without LAVA."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from fsjoule.errors import ConfigError
from fsjoule.lava.bench_shell import PROMPT
from fsjoule.lava.device import SHELL
from fsjoule.lava.helpers import WAIT_S

_PRIORITIES: Final = ("low", "medium", "high")
_MOST: Final = 100
# Besides the wait for the place: LAVA retries nothing in it.
_AROUND_MINUTES: Final = 5
# The exit codes of a bench that has measured; with any other the job is incomplete (docs/first-bench.md).
_END: Final = (
    'case "$code" in 0) lava-test-case bench --result pass ;; 1) lava-test-case bench --result fail ;; '
    '*) lava-test-case bench --result fail; lava-test-raise "bench-ended-with-exit-code-$code" ;; esac'
)


@dataclass(frozen=True, slots=True)
class Job:
    """What a job measures (options of pytest) and how LAVA treats it. `wait_s` is the device's wait for its place."""

    name: str
    options: tuple[str, ...]
    device_type: str
    device: str | None = None
    priority: str = "medium"
    hours: int = 12
    wait_s: float = WAIT_S


def suite_job(job: Job) -> str:
    """The job's definition in YAML. Raises ConfigError for a wrong priority or an impossible time."""
    if job.hours < 1:
        raise ConfigError(f"--hours {job.hours}: a job needs at least one")
    set_up = {"minutes": int(job.wait_s // 60) + _AROUND_MINUTES}
    definition = {
        "job_name": job.name,
        "device_type": job.device_type,
        **({} if job.device is None else {"device": job.device}),
        "visibility": "public",
        "priority": _priority(job.priority),
        "timeouts": {
            "job": {"hours": job.hours},
            "action": {"minutes": _AROUND_MINUTES},
            "connection": {"minutes": 2},
        },
        "actions": [
            {"deploy": {"to": "overlay", "timeout": {"minutes": _AROUND_MINUTES}}},
            {
                "boot": {
                    "method": "new_connection",
                    "connection": SHELL,
                    "prompts": [re.escape(PROMPT.strip())],
                    "transfer_overlay": {
                        "download_command": "fsjoule lava overlay",
                        "unpack_command": "tar --no-overwrite-dir -C / -xzf",
                    },
                    "timeout": set_up,
                }
            },
            {
                "test": {
                    "definitions": [_definition(job)],
                    "timeout": {"hours": job.hours},
                }
            },
        ],
    }
    return yaml.safe_dump(definition, sort_keys=False, width=1000)


def _definition(job: Job) -> dict[str, Any]:
    bench = shlex.join(["pytest", "tests/bench", "-p", "no:cacheprovider", *job.options])
    steps = ['cd "$FSJOULE_DIR"', "code=0", f'{bench} --lg-env "$LG_ENV" --results "$FSJOULE_RESULTS" || code=$?', _END]
    return {
        "from": "inline",
        "name": "fsjoule",
        "path": "inline/fsjoule.yaml",
        "repository": {
            "metadata": {
                "format": "Lava-Test Test Definition 1.0",
                "name": "fsjoule",
                "description": "throughput and energy of filesystems; the worker drives the board",
            },
            "run": {"steps": steps},
        },
    }


def bench_options(given: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """Options of pytest from names and values, without those that are None."""
    return tuple(word for name, value in given if value is not None for word in (name, str(value)))


def _priority(text: str) -> str | int:
    if text in _PRIORITIES:
        return text
    if text.isdecimal() and int(text) <= _MOST:
        return int(text)
    raise ConfigError(f"--priority {text}: it is low, medium, high, or a number up to {_MOST}")
