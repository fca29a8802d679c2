"""A LAVA server for tests: Debian's, in a minimal sid of the cache, on PostgreSQL of this machine.

Web server and scheduler run in a chroot without init, as root, in mount namespaces of their own; they listen on the
loopback interface only. The worker is `lava_dispatcher`'s: fsjoule's helpers need this machine's Python.
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from lava_dispatcher import DISPATCHER, SUITE, Dispatcher, archive, home, unpack
from postgres_server import running_server
from waiting import wait_for

from fsjoule.host import process
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.host.paths import cache_folder
from fsjoule.host.process import run_watched, size_mib

PACKAGES: Final = ("lava-server", "lavacli")
WORKER: Final = "bench"
USER: Final = "admin"
# A virtual lab, which is a device of that name and type.
DEVICE: Final = "virtual"
# A secret of the shell in which a device file is made. No job has any use for it.
SHELL_SECRET: Final = "mellon-for-tests-only"
SHELL_SECRETS: Final = {
    "FSJOULE_INDEX": f"postgresql://writer:{SHELL_SECRET}@host/runs",
    "KCIDB_REST": f"https://{SHELL_SECRET}@host",
    **dict.fromkeys(("FSJOULE_GITLAB_TOKEN", "FSJOULE_LAVA_TOKEN", "KCI_API_TOKEN"), SHELL_SECRET),
}
_PASSWORD: Final = "for-tests-only"
_SECRET: Final = "t0ken-for-tests-only"
_LIMIT_S: Final = 600.0
_BUILD_LIMIT_S: Final = 1800.0
_LISTENING: Final = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
# $0 is the system, $1 the server's own folder, $2 PostgreSQL's. Nothing in the system itself is written to.
_INSIDE: Final = """
root=$0 own=$1 postgres=$2
shift 2; shift
mount --bind "$own/etc" "$root/etc/lava-server"
mount --bind "$own/lib" "$root/var/lib/lava-server"
mount --bind "$own/log" "$root/var/log/lava-server"
mount --bind "$own/tmp" "$root/tmp"
mount --bind "$postgres" "$root/run/postgresql"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec env -i HOME=/tmp LC_ALL=C.UTF-8 PATH=/usr/bin:/usr/sbin PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=lava_server.settings.prod /usr/sbin/chroot "$root" "$@"
"""
_MOUNTED: Final = ("var/lib/lava-server", "var/log/lava-server", "tmp", "run/postgresql", "dev", "proc")


class RefusedError(Exception):
    """The server answered with an error; `code` is HTTP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"HTTP {code}: {text}")
        self.code = code


@dataclass
class Server:
    """A running server. `config` is its /etc/lava-server, `token` that of its administrator."""

    inside: list[str]
    config: Path
    worker_folder: Path
    url: str = ""
    token: str = _SECRET

    def manage(self, *words: str) -> str:
        """`lava-server manage`. Raises HostError."""
        done = process.run([*self.inside, "lava-server", "manage", *words], timeout_s=_LIMIT_S)
        return done.stdout.decode()

    def add_device(self, name: str, device_type: str, template: str) -> None:
        """Add a device as docs/lava.md says."""
        types = self.get("devicetypes/")["results"]
        if all(each["name"] != device_type for each in types):
            self.manage("device-types", "add", device_type)
        (self.config / "dispatcher-config/devices" / f"{name}.jinja2").write_text(template)
        self.manage("devices", "add", "--device-type", device_type, "--worker", WORKER, name)

    @contextmanager
    def health_check(self, device_type: str, job: str) -> Generator[None]:
        """Have the type's devices checked with that job. After the body no job of another test waits for a check."""
        file = self.config / "dispatcher-config/health-checks" / f"{device_type}.yaml"
        file.write_text(job)
        try:
            yield
        finally:
            file.unlink()

    def set_health(self, device: str, health: str) -> None:
        self.manage("devices", "update", "--health", health, device)

    def get(self, path: str) -> Any:
        """An answer of the REST interface, parsed if it is JSON. Raises RefusedError."""
        return self._ask(f"api/v0.2/{path}", None)

    def post(self, path: str, content: dict[str, Any]) -> Any:
        return self._ask(f"api/v0.2/{path}", content)

    def lavacli(self, *words: str) -> str:
        uri = self.url.replace("://", f"://{USER}:{self.token}@") + "/RPC2"
        return process.run([*self.inside, "lavacli", "--uri", uri, *words], timeout_s=_LIMIT_S).stdout.decode()

    def submit(self, job: str) -> int:
        """The number of the new job."""
        (self.config / "submitted.yaml").write_text(job)
        return int(self.lavacli("jobs", "submit", "/etc/lava-server/submitted.yaml"))

    def cancel(self, job: int) -> None:
        self.lavacli("jobs", "cancel", str(job))

    def job(self, number: int) -> dict[str, Any]:
        """What the server knows of a job: `state`, `health`, `actual_device`, ..."""
        return self.get(f"jobs/{number}/")

    def device(self, name: str) -> dict[str, Any]:
        return self.get(f"devices/{name}/")

    def results(self, number: int) -> list[dict[str, Any]]:
        """A job's results: `name`, `result`, `measurement`, `unit`, `suite`, ..."""
        return self.get(f"jobs/{number}/tests/?limit=1000")["results"]

    def log(self, number: int) -> str:
        """A job's log so far, which is empty before it begins."""
        try:
            return str(self.get(f"jobs/{number}/logs/"))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return ""
            raise

    def wait(self, number: int, states: tuple[str, ...] = ("Finished",), limit_s: float = 900.0) -> dict[str, Any]:
        """Wait until a job is in one of the states. Raises AssertionError with the end of its log."""
        wait_for(lambda: self.job(number)["state"] in states, lambda: self.log(number)[-3000:], limit_s)
        return self.job(number)

    def _ask(self, path: str, content: dict[str, Any] | None) -> Any:
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RefusedError(error.code, error.read().decode(errors="replace")[:500]) from error
        try:
            return json.loads(text)
        except ValueError:
            return text


@contextmanager
def server(folder: Path) -> Generator[Server]:
    """A server with a scheduler and a worker, named WORKER, below `folder`. All ends with the body. Raises HostError.

    The system is fetched if the cache does not have it.
    """
    key = cache_key({"packages": PACKAGES, "dispatcher": DISPATCHER, "suite": SUITE})
    root = build_once("packages", "lava-server", key, _fetch, root=cache_folder("lava"))
    with ExitStack() as until, running_server() as database:
        until.enter_context(home())
        for name in ("lib/default/media/job-output", "log", "tmp"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(root / "tree/etc/lava-server", folder / "etc")
        dispatcher = Dispatcher(root / "dispatcher")
        _configure(folder, database.new_database(), dispatcher.job_variables(folder / "worker"))
        inside = [process.find_tool("unshare"), "--mount", "bash", "-ec", _INSIDE]
        inside += [str(root / "tree"), str(folder), str(database.socket_folder), "--"]
        found = Server(inside, folder / "etc", folder / "worker")
        found.manage("migrate", "--noinput")
        found.manage("workers", "add", WORKER)
        found.manage("users", "add", USER, "--superuser", "--staff", "--passwd", _PASSWORD)
        found.manage("tokens", "add", "--user", USER, "--secret", _SECRET)
        found.url = until.enter_context(_web(inside, folder / "web.log"))
        scheduler = ["lava-server", "manage", "lava-scheduler", "--user", "root", "--group", "root"]
        until.enter_context(_running([*inside, *scheduler, "--log-file", "-"], folder / "scheduler.log"))
        token = found.get(f"workers/{WORKER}/")["token"]
        until.enter_context(dispatcher.worker(WORKER, folder / "worker", found.url, token))
        log = folder / "worker/worker.log"
        wait_for(lambda: found.get(f"workers/{WORKER}/")["state"] == "Online", log.read_text, _LIMIT_S)
        yield found


def _configure(folder: Path, database: str, variables: dict[str, str]) -> None:
    named = re.search(r"@/(\w+)\?", database)
    assert named is not None
    settings = {
        "SECRET_KEY": _SECRET,
        "DATABASES": {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": named[1],
                "USER": "postgres",
                "HOST": "/run/postgresql",
            }
        },
    }
    # JSON is YAML.
    (folder / "etc/settings.d/00-tests.yaml").write_text(json.dumps(settings))
    (folder / "etc/env.yaml").write_text(json.dumps({"purge": True, "overrides": variables}))


@contextmanager
def _web(inside: list[str], log: Path) -> Generator[str]:
    """The web server, at a free port. Gives its address."""
    gunicorn = ["gunicorn3", "lava_server.wsgi", "--bind", "127.0.0.1:0", "--worker-class", "gthread"]
    gunicorn += ["--workers", "1", "--threads", "8", "--worker-tmp-dir", "/tmp", "--timeout", "120"]
    with _running([*inside, *gunicorn], log):
        wait_for(lambda: _LISTENING.search(log.read_text()) is not None, log.read_text, _LIMIT_S)
        found = _LISTENING.search(log.read_text())
        assert found is not None
        yield f"http://127.0.0.1:{found[1]}"


@contextmanager
def _running(command: list[str], log: Path) -> Generator[None]:
    started = process.start(command, log=log)
    try:
        yield
    finally:
        process.stop(started)


def _fetch(folder: Path) -> None:
    """A system that is unpacked and not configured: it has no users, and no service of it starts."""
    tree, log = folder / "tree", folder / "mmdebstrap.log"
    options = ["--variant=extract", '--aptopt=APT::Install-Recommends "false"', f"--include={','.join(PACKAGES)}"]
    run_watched(
        ["mmdebstrap", *options, SUITE, tree, archive().line],
        log=log,
        timeout_s=_BUILD_LIMIT_S,
        how_far=lambda: f"LAVA's server: {size_mib(tree):.0f} MiB so far",
        transient=True,
    )
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(exist_ok=True)
        if not (tree / name).exists():
            (tree / name).symlink_to(f"usr/{name}")
    for name in _MOUNTED:
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    # Programs are started often, and nothing is written to the system then.
    compileall = ["python3", "-m", "compileall", "-q", "-j", "2", "/usr/lib/python3", "/usr/lib/python3.14"]
    run_watched(
        ["chroot", tree, *compileall], log=log, timeout_s=_BUILD_LIMIT_S, how_far=lambda: "LAVA's server: compiling"
    )
    log.unlink()
    (folder / "dispatcher").mkdir()
    unpack(folder / "dispatcher", DISPATCHER)
