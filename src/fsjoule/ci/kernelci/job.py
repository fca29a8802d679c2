"""A job of KernelCI's for this lab: its definition, and its kernel as a build folder.

Source: kernelci-core of August 2026 (config/runtime/base/pull_labs.jinja2, kernelci/runtime/pull_labs.py).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from fsjoule.ci.kernelci.api import asked, download, is_node
from fsjoule.errors import ConfigError
from fsjoule.host.plaintext import plain_line
from fsjoule.host.web import is_address, is_private
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB

# A job without tests of its own asks for a boot; a pipeline may call our bench by its name.
TESTS: Final = ("boot", "fsjoule")
_ARCHITECTURES: Final = {"arm": ("armhf", "armel"), "arm64": ("arm64",), "x86_64": ("amd64",), "i386": ("i386",)}
_MOST_BYTES: Final = {"kernel": 512 * MIB, "dtb": 16 * MIB, "modules": 4096 * MIB}
_ARCHIVES: Final = (".tar", ".tar.gz", ".tar.xz")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_SHOWN: Final = 80
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class _Data(BaseModel):
    platform: str | None = None
    runtime: str | None = None
    kernel_revision: dict[str, Any] | None = None


class _Node(BaseModel):
    id: str
    name: str = ""
    artifacts: dict[str, str] | None = None
    data: _Data | None = None
    timeout: datetime | None = None


class _Test(BaseModel):
    type: str


class _Environment(BaseModel):
    platform: str
    arch: str


class _Integrity(BaseModel):
    sha256: dict[str, str] = Field(default_factory=dict)


class Definition(BaseModel):
    """The definition of a job. Fields that a bench does not use are left out: root filesystem, console, call-back."""

    artifacts: dict[str, str]
    tests: list[_Test] = Field(default_factory=list[_Test])
    environment: _Environment
    integrity: _Integrity = Field(default_factory=_Integrity)


@dataclass(frozen=True, slots=True)
class KernelCIJob:
    """A job: its node, the address of its definition, its kernel's revision ("": unknown), and until when it waits."""

    node: str
    name: str
    definition: str
    revision: str
    ends: datetime | None


def job_of(event: dict[str, Any], runtime: str, platform: str) -> KernelCIJob | None:
    """The job of an event, if it is for this lab and this platform; else None."""
    try:
        node = _Node.model_validate(event.get("node"))
    except ValidationError:
        return None
    data, url = node.data, (node.artifacts or {}).get("job_definition", "")
    if data is None or (data.runtime, data.platform) != (runtime, platform) or not is_node(node.id):
        return None
    # A LAVA job for labs behind a firewall ends with .yaml.
    if not is_address(url) or not urlsplit(url).path.endswith(".json"):
        return None
    told = data.kernel_revision or {}
    revision = str(told.get("describe") or told.get("commit") or "")
    ends = node.timeout
    return KernelCIJob(
        node.id, node.name, url, revision, ends.replace(tzinfo=UTC) if ends and not ends.tzinfo else ends
    )


def check_source(api: str, url: str, what: str, *, sha256: str | None = None) -> None:
    """Raise ConfigError for what anybody on the way may change, and for what is not where KernelCI's API is.

    An API by http, or in the lab's own network, is its user's choice.
    """
    if api.startswith("https:") and sha256 is None and not url.startswith("https:"):
        raise ConfigError(f"the job's {what} comes by http and has no SHA-256: {plain_line(url)[:_SHOWN]}")
    if is_private(url) and not is_private(api):
        raise ConfigError(f"the job's {what} is in the lab's own network: {plain_line(url)[:_SHOWN]}")


def definition_of(job: KernelCIJob) -> Definition:
    """Fetch the definition. Raises KernelCIError if that fails, ConfigError if it is none."""
    found = asked("GET", job.definition, f"fetching the definition of job {job.node}")
    try:
        return Definition.model_validate(found)
    except ValidationError as error:
        [first, *_] = error.errors()
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"the definition of job {job.node} is none: {where}: {first['msg']}") from error


def check(definition: Definition, platform: str, recipe: Recipe) -> None:
    """Raise ConfigError for a job that this lab's board cannot do."""
    board = definition.environment
    if board.platform != platform:
        raise ConfigError(f"the job is for {board.platform!r}, and this board is {platform!r}")
    if recipe.architecture not in _ARCHITECTURES.get(board.arch, ()):
        raise ConfigError(f"the job's kernel is for {board.arch!r}, and this board is {recipe.architecture}")
    if strange := sorted({each.type for each in definition.tests} - set(TESTS)):
        raise ConfigError(f"this lab measures filesystems and runs no tests of type {', '.join(strange)}")
    if missing := [name for name in ("kernel", "modules") if name not in definition.artifacts]:
        raise ConfigError(f"the job has no {' and no '.join(missing)}")
    if recipe.boot.dtb is not None and "dtb" not in definition.artifacts:
        raise ConfigError(f"the job has no dtb, and this board needs {recipe.boot.dtb}")
    for part in _MOST_BYTES.keys() & definition.artifacts.keys():
        said = definition.integrity.sha256.get(part)
        if said is not None and not _DIGEST.fullmatch(said):
            raise ConfigError(
                f"the SHA-256 of the job's {part} is not 64 hexadecimal digits: {plain_line(said)[:_SHOWN]!r}"
            )


def bring_kernel(job: KernelCIJob, definition: Definition, into: Path) -> Path:
    """A build folder of the job's kernel below `into`. Raises ConfigError, KernelCIError, StorageError."""
    # The revision names no folder: "..", for example, is another job's. metadata.json tells it.
    folder = into / "kernel"
    folder.mkdir(parents=True, exist_ok=True)
    for part in _MOST_BYTES:
        url = definition.artifacts.get(part)
        if url is None:
            continue
        if not is_address(url):
            raise ConfigError(f"the job's {part} has no address of a web server")
        name = Path(urlsplit(url).path).name
        if not _NAME.fullmatch(name):
            raise ConfigError(f"the job's {part} has no name for a file: {url}")
        if part == "modules":
            suffix = next((each for each in _ARCHIVES if name.endswith(each)), None)
            if suffix is None:
                raise ConfigError(f"the job's modules are no archive that is known here: {name}", hint="modules.tar.xz")
            name = f"modules{suffix}"
        download(
            url,
            folder / name,
            f"the {part} of job {job.node}",
            most_bytes=_MOST_BYTES[part],
            sha256=definition.integrity.sha256.get(part),
        )
    (folder / "metadata.json").write_text(json.dumps({"git_describe": job.revision}), encoding="utf-8")
    return folder
