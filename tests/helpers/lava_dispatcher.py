"""LAVA's dispatcher for tests: Debian's packages, unpacked into the cache, on this environment's Python.

`lava-run` needs root and /var/lib/lava. It gets a mount namespace with a /var/lib/lava of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fsjoule.host import process
from fsjoule.host.apt import DebianArchive, PrivateApt, debian_archive
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.host.paths import cache_folder

DISPATCHER: Final = ("lava-dispatcher", "lava-common")
# The server's package has base.jinja2, which device templates extend; nothing of it runs.
PACKAGES: Final = (*DISPATCHER, "lava-server")
SUITE: Final = "sid"
_HOME: Final = Path("/var/lib/lava")
_MODULES: Final = "usr/lib/python3/dist-packages"
# What Debian's lava-worker gives its jobs.
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
_START: Final = 'mount --bind "$0" /var/lib/lava && exec env -i HOME=/root LC_ALL=C.UTF-8 "$@"'
# What a worker starts as `lava-run`: it ends with the worker, which in a real lab may be started again meanwhile.
_LAVA_RUN: Final = """\
#!/bin/sh
exec setpriv --pdeathsig TERM {python} -B {root}/usr/bin/lava-run "$@"
"""
# LAVA's own Python writes no compiled files: a cache's entry that has other files in it is damaged. It is an option and
# not a variable, because a job's programs would inherit that: a bench would compile anew all that it needs to end.
_PYTHON: Final = (sys.executable, "-B")
_CHECK: Final = """
import json, sys
from lava_common import schemas
from lava_common.schemas import device
given = json.load(sys.stdin)
device.validate(given["device"])
schemas.validate(given["job"], strict=True)
"""
_RENDER: Final = """
import sys, jinja2
loader = jinja2.ChoiceLoader([jinja2.DictLoader({"it": sys.stdin.read()}), jinja2.FileSystemLoader(sys.argv[1])])
print(jinja2.Environment(loader=loader, trim_blocks=True).get_template("it").render())
"""


@dataclass(frozen=True)
class Dispatcher:
    root: Path

    @property
    def modules(self) -> Path:
        return self.root / _MODULES

    @property
    def version(self) -> str:
        return (self.modules / "lava_common" / "VERSION").read_text().strip()

    @contextmanager
    def run(self, number: int, out: Path, device: str, job: str, *options: str) -> Generator[subprocess.Popen[bytes]]:
        """lava-run in the background. Results are in `out`."""
        out.mkdir()
        for name, text in (("device", device), ("job", job), ("dispatcher", "dispatcher_ip: 127.0.0.1\n")):
            (out / f"{name}.yaml").write_text(text)
        words = [*_PYTHON, str(self.root / "usr/bin/lava-run"), "--job-id", str(number), "--output-dir", str(out)]
        words += ["--device", f"{out}/device.yaml", "--dispatcher", f"{out}/dispatcher.yaml", *options]
        (out / "lava/dispatcher/tmp").mkdir(parents=True)
        start = [*self._alone(out / "lava"), *words, f"{out}/job.yaml"]
        with (out / "stderr").open("wb") as log, subprocess.Popen(start, stdout=log, stderr=log) as running:
            try:
                yield running
            finally:
                if running.poll() is None:
                    running.kill()

    @contextmanager
    def worker(self, name: str, folder: Path, url: str, token: str) -> Generator[None]:
        """A worker that the server at `url` knows by this token; its folder is `folder`. Its jobs end with it.

        The server is to give its jobs the variables of `job_variables`.
        """
        (folder / "lava/dispatcher/worker").mkdir(parents=True)
        (folder / "bin").mkdir()
        lava_run = folder / "bin/lava-run"
        lava_run.write_text(_LAVA_RUN.format(python=sys.executable, root=self.root))
        lava_run.chmod(0o755)
        words = [*_PYTHON, str(self.root / "usr/bin/lava-worker"), "--name", name, "--url", url, "--token", token]
        # A ping's interval is also the limit of each answer, on a machine that may be busy.
        words += ["--ping-interval", "5", "--job-log-interval", "1", "--level", "DEBUG", "--log-file", "-"]
        started = process.start([*self._alone(folder / "lava"), *words], log=folder / "worker.log")
        try:
            yield
        finally:
            process.stop(started)

    def job_variables(self, folder: Path) -> dict[str, str]:
        """The variables of the jobs of the worker with that folder."""
        variables = {"HOME": "/root", "LC_ALL": "C.UTF-8", "PATH": f"{folder}/bin:{_PATH}"}
        return variables | {"PYTHONPATH": str(self.modules)}

    def _alone(self, home: Path) -> list[str]:
        """The start of a command line: a mount namespace in which `home` is /var/lib/lava, and few variables."""
        start = [process.find_tool("unshare"), "--mount", "sh", "-c", _START, str(home)]
        return [*start, f"PATH={_PATH}", f"PYTHONPATH={self.modules}"]

    def check(self, device: str, job: str) -> None:
        """Check both strictly, as a server does with what is submitted to it. Raises HostError with what is wrong."""
        given = json.dumps({"device": yaml.safe_load(device), "job": yaml.safe_load(job)})
        self._python(_CHECK, given)

    def render(self, template: str) -> Any:
        """A device template as a server renders it, parsed."""
        types = str(self.root / "usr/share/lava-server/device-types")
        return yaml.safe_load(self._python(_RENDER, template, types))

    def _python(self, program: str, text: str, *words: str) -> str:
        done = process.run(
            [*_PYTHON, "-c", program, *words],
            timeout_s=60,
            input_bytes=text.encode(),
            env={"PYTHONPATH": str(self.modules)},
        )
        return done.stdout.decode()


@contextmanager
def dispatcher() -> Generator[Dispatcher]:
    """The dispatcher of the cache, fetched if it is not there. Raises HostError."""
    key = cache_key({"packages": PACKAGES, "suite": SUITE})
    root = build_once("packages", "lava", key, unpack, root=cache_folder("lava"))
    with home():
        yield Dispatcher(root)


@contextmanager
def home() -> Generator[None]:
    """/var/lib/lava is there, for namespaces to mount theirs; the last of several processes takes it away.

    Not before the last guard has ended: that takes the mount away in every namespace.
    """
    opened = _shared_home()
    try:
        yield
    finally:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A worker of this machine has files in it.
            with contextlib.suppress(OSError):
                _HOME.rmdir()
        os.close(opened)


def _shared_home() -> int:
    while True:
        with contextlib.suppress(FileExistsError):
            _HOME.mkdir()
        with contextlib.suppress(FileNotFoundError):
            opened = os.open(_HOME, os.O_DIRECTORY)
            fcntl.flock(opened, fcntl.LOCK_SH)
            # Another process may have taken it away before it was locked.
            if os.fstat(opened).st_nlink:
                return opened
            os.close(opened)


def results(out: Path) -> list[dict[str, Any]]:
    """The job's results so far, in their order."""
    return [line["msg"] for line in _logged(out) if line["lvl"] == "results"]


def output(out: Path) -> str:
    """What the job's commands and its shell have printed so far."""
    return "\n".join(str(line["msg"]) for line in _logged(out) if line["lvl"] in ("target", "debug", "error"))


def _logged(out: Path) -> list[dict[str, Any]]:
    log = out / "logs.yaml"
    if not log.exists():
        return []
    # The last line may be half a line.
    text = log.read_text().rpartition("\n")[0]
    return yaml.load(text, yaml.CSafeLoader) or []


def archive() -> DebianArchive:
    """Sid. Its lists look expired where a mirror is a few days behind."""
    return debian_archive(SUITE, check_valid_until=False)


def unpack(folder: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Fetch packages and unpack them into a folder. Raises HostError."""
    work = folder / "work"
    architecture = process.run(["dpkg", "--print-architecture"], timeout_s=10).stdout.decode().strip()
    apt = PrivateApt(work / "apt", archive=archive(), architecture=architecture)
    apt.update()
    (work / "debs").mkdir()
    for package in apt.download(apt.show(packages), work / "debs"):
        process.run(["dpkg-deb", "--extract", package, folder], timeout_s=120)
    shutil.rmtree(work)
    process.run([sys.executable, "-m", "compileall", "-q", folder / _MODULES], timeout_s=300)
    assert os.access(folder / "usr/bin/lava-run", os.X_OK)
