"""A suite as a LAVA job: a shell on the worker, in which `fsjoule bench` measures as it does without LAVA."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from fsjoule.ci.lava.device import SHELL
from fsjoule.ci.lava.helpers import PROMPT
from fsjoule.ci.lava.settings import WAIT_S, remarks
from fsjoule.errors import ConfigError

_PRIORITIES: Final = ("low", "medium", "high")
_MOST: Final = 100
# The longest time of an action, besides the wait for the place.
AROUND_MINUTES: Final = 5
# The exit codes of programs that have measured; with any other the job is incomplete (docs/first-bench.md).
_BENCH: Final = {0: "pass", 1: "fail"}
_GATE: Final = {0: "pass", 1: "fail", 3: "unknown"}


@dataclass(frozen=True, slots=True)
class LavaJob:
    """A job: its measurements (options of the program), and how LAVA treats it. `wait_s` is the wait for its place.

    `without` are lines about what the board does without, for the job's readers. `own` are the files of a suite of the
    user's, by path, the suite's own first: the job has them.
    """

    name: str
    options: tuple[str, ...]
    device_type: str
    device: str | None = None
    priority: str = "medium"
    hours: int = 12
    wait_s: float = WAIT_S
    without: tuple[str, ...] = ()
    own: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def bringing(self) -> list[str]:
        """The steps that put the suite's files into a folder of the worker."""
        steps = ["own=$(mktemp -d)"] if self.own else []
        for path, content in self.own.items():
            place = f'"$own"/{shlex.quote(path)}'
            steps += [f"mkdir -p {place.rpartition('/')[0]}"] if "/" in path else []
            steps += [f"echo {base64.b64encode(content).decode()} | base64 -d > {place}"]
        return steps


def suite_job(job: LavaJob) -> str:
    """The job that measures, in YAML. Raises ConfigError for a wrong priority or an impossible time."""
    return _measuring(job, ["fsjoule", "bench"], "bench", _BENCH)


def gate_job(job: LavaJob) -> str:
    """The job that runs `fsjoule gate` and has the case `gate` with its verdict. Raises ConfigError as above."""
    return _measuring(job, ["fsjoule", "gate"], "gate", _GATE)


def _measuring(job: LavaJob, program: list[str], case: str, answers: Mapping[int, str]) -> str:
    own = f' --suite "$own"/{shlex.quote(next(iter(job.own)))}' if job.own else ""
    command = f'{shlex.join([*program, *job.options])}{own} --lg-env "$LG_ENV" --results "$FSJOULE_RESULTS" || code=$?'
    known = " ".join(f"{code}) lava-test-case {case} --result {result} ;;" for code, result in answers.items())
    other = f'*) lava-test-case {case} --result fail; lava-test-raise "{case}-ended-with-exit-code-$code" ;;'
    steps = ['cd "$FSJOULE_DIR"', "code=0", *job.bringing, command, f'case "$code" in {known} {other} esac']
    told = ("throughput and energy of filesystems; the worker drives the board", *job.without)
    test = definition("fsjoule", "; ".join(told), steps)
    return written(job, [*shell_on_worker(job), {"test": {"definitions": [test], "timeout": {"hours": job.hours}}}])


def written(job: LavaJob, actions: Sequence[dict[str, Any]]) -> str:
    """A job of these actions in YAML. Raises ConfigError for a wrong priority or an impossible time."""
    if job.hours < 1:
        raise ConfigError(f"--hours {job.hours}: a job needs at least one")
    document = {
        "job_name": job.name,
        "device_type": job.device_type,
        **({} if job.device is None else {"device": job.device}),
        "visibility": "public",
        "priority": _priority(job.priority),
        "timeouts": {
            "job": {"hours": job.hours},
            "action": {"minutes": AROUND_MINUTES},
            "connection": {"minutes": 2},
        },
        "actions": list(actions),
    }
    return remarks(job.without) + yaml.safe_dump(document, sort_keys=False, width=1000)


def shell_on_worker(job: LavaJob) -> list[dict[str, Any]]:
    """The actions that open a shell on the worker, with LAVA's overlay there."""
    return [
        {"deploy": {"to": "overlay", "timeout": {"minutes": AROUND_MINUTES}}},
        {
            "boot": {
                "method": "new_connection",
                "connection": SHELL,
                "prompts": [re.escape(PROMPT.strip())],
                "transfer_overlay": {
                    "download_command": "fsjoule lava overlay",
                    "unpack_command": "tar --no-overwrite-dir -C / -xzf",
                },
                "timeout": {"minutes": int(job.wait_s // 60) + AROUND_MINUTES},
            }
        },
    ]


def definition(name: str, description: str, steps: Sequence[str]) -> dict[str, Any]:
    """A test definition that is part of the job."""
    metadata = {"format": "Lava-Test Test Definition 1.0", "name": name, "description": description}
    repository = {"metadata": metadata, "run": {"steps": list(steps)}}
    return {"from": "inline", "name": name, "path": f"inline/{name}.yaml", "repository": repository}


def bench_options(given: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """Options from names and values, without those that are None."""
    return tuple(word for name, value in given if value is not None for word in (name, str(value)))


def _priority(text: str) -> str | int:
    if text in _PRIORITIES:
        return text
    if text.isdecimal() and int(text) <= _MOST:
        return int(text)
    raise ConfigError(f"--priority {text}: it is low, medium, high, or a number up to {_MOST}")
