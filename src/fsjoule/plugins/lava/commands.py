"""`fsjoule lava`: a labgrid place as a LAVA device, a suite as a LAVA job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsjoule.cli.common import Filesystems, Wait, check_file, joined, progress, write_text
from fsjoule.errors import ConfigError
from fsjoule.host.messages import lines_to

if TYPE_CHECKING:
    from fsjoule.ci.lava.settings import LavaBoard

app = typer.Typer(
    no_args_is_help=True, help="Make a labgrid place a LAVA device, and a suite a LAVA job (docs/lava.md)."
)

Place = Annotated[str, typer.Argument(help="The labgrid place.")]
LgEnv = Annotated[
    Path, typer.Option("--lg-env", envvar="LG_ENV", help="The board's labgrid environment file, on the worker.")
]
Output = Annotated[Path | None, typer.Option(help="File to write (default: standard output).")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: a variable of the environment.")]

_WAIT = "10m"  # the help must not wait for labgrid: `fsjoule.ci.lava.settings` has the same


@app.command("device")
def device(
    place: Place,
    lg_env: LgEnv,
    *,
    template: Annotated[
        bool, typer.Option("--template", help="The server's jinja2 form, extending base.jinja2.")
    ] = False,
    device_type: Annotated[str | None, typer.Option(help="The device's type (default: the board's name).")] = None,
    results: Annotated[Path | None, typer.Option(help="Where the worker keeps run folders.")] = None,
    user: Annotated[str, typer.Option(help="LAVA's user of labgrid; who uses the place by hand has another.")] = "lava",
    wait: Wait = _WAIT,
    name: Annotated[str | None, typer.Option(help="The device's name in LAVA (default: the place).")] = None,
    worker: Annotated[str | None, typer.Option(help="The worker's name in LAVA (default: this computer's).")] = None,
    server: Annotated[str, typer.Option(help="The LAVA server's address; runs then name their job's page.")] = "",
    output: Output = None,
) -> None:
    """Print the device file of a place, for lava-run or (with --template) for a LAVA server. Run it on the worker.

    Example: fsjoule lava device imx6ul-evk --lg-env env/boards/imx6ul-evk.yaml --template --output imx6ul-evk.jinja2
    """
    import socket

    from fsjoule.ci.lava.device import device_dictionary, device_template
    from fsjoule.ci.lava.pull import LavaServer
    from fsjoule.ci.lava.settings import bench_of
    from fsjoule.host.paths import state_dir
    from fsjoule.lab import read_environment

    if server:
        LavaServer(server)  # refuses what is no address
    job = {"DEVICE": name or place, "WORKER": worker or socket.getfqdn(), "SERVER": server}
    told = {f"FSJOULE_LAVA_{each}": text for each, text in job.items() if text}
    bench = bench_of(place, lg_env, user=user, wait_s=_seconds(wait), job=told)
    kept = results or state_dir() / "lava" / "results"
    environment = read_environment(lg_env)
    named, without = device_type or environment.profile.name, environment.does_without
    _write(
        device_template(bench, kept, without) if template else device_dictionary(bench, kept, named, without), output
    )


@app.command("job")
def job(
    more: Annotated[
        list[str] | None, typer.Argument(help="Further options of `fsjoule bench`, after --: -k write.")
    ] = None,
    *,
    suite: Annotated[str, typer.Option(help="What to measure.")] = "quick",
    fs: Filesystems = None,
    kernel: Annotated[str, typer.Option(help="Kernels, a,b; paths are the worker's.")] = "6.1",
    repeat: Annotated[int | None, typer.Option(help="Repetitions, each a boot (default: the suite's).")] = None,
    provision: Annotated[str | None, typer.Option(help="Where the filesystem lives: root or scratch.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random choices (default: new in each job).")] = None,
    lg_env: Annotated[
        Path | None,
        typer.Option("--lg-env", envvar="LG_ENV", help="The board's environment file, to check names with."),
    ] = None,
    device_type: Annotated[str | None, typer.Option(help="The devices' type (default: the board's name).")] = None,
    place: Annotated[str | None, typer.Option(help="Only this place's device.")] = None,
    priority: Annotated[str, typer.Option(help="low, medium, high, or 0 to 100.")] = "medium",
    hours: Annotated[int | None, typer.Option(help="The job's time limit (default: 12; with --smoke 1).")] = None,
    wait: Wait = _WAIT,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Measure nothing: is the device fit? LAVA flashes and boots the board itself."),
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="With --smoke: a card image's address, or a path (default: one is built here).")
    ] = None,
    health_check: Annotated[bool, typer.Option("--health-check", help="Name it so; LAVA runs it by itself.")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="With --candidate: the job is a gate, and its result the verdict.")
    ] = None,
    candidate: Annotated[str | None, typer.Option(help="The kernel that may be worse than --baseline.")] = None,
    each: Annotated[
        bool, typer.Option("--each", help="One job for each kernel and filesystem, as files in the folder --output.")
    ] = False,
    output: Output = None,
) -> None:
    """Print the job that measures a suite, or finds out whether a device is fit, for lavacli or lava-run.

    Several kernels and filesystems are one job and one run; with --each they are as many. With --baseline and
    --candidate the job runs `fsjoule gate`, and options of it follow after --.

    Example: fsjoule lava job --suite quick --fs ext4,btrfs --lg-env env/boards/imx6ul-evk.yaml --output job.yaml
    """
    from itertools import product

    from fsjoule.ci.lava.job import LavaJob, bench_options, gate_job, suite_job
    from fsjoule.ci.lava.signals import safe
    from fsjoule.filesystems import named_filesystems
    from fsjoule.lab import read_environment
    from fsjoule.model.labels import listed
    from fsjoule.runs.options import BenchOptions
    from fsjoule.runs.plan import planned
    from fsjoule.runs.request import choose
    from fsjoule.suites import own_files
    from fsjoule.suites import suite as chosen_suite

    environment = None if lg_env is None else read_environment(lg_env)
    gate = None if baseline is None or candidate is None else (baseline, candidate)
    _check_kinds(gate=(baseline, candidate), smoke=smoke, each=each, repeat=repeat, output=output)
    named = device_type or (None if environment is None else environment.profile.name)
    if named is None:
        raise ConfigError("a job needs the type of its devices", hint="give --device-type, or --lg-env of one of them")

    # A worker may have another project's file.
    fs = None if fs is None else list(named_filesystems(fs))

    def made(filesystems: str | None, kernels: str) -> LavaJob:
        asked = BenchOptions(
            suite=suite,
            kernel=kernels,
            repeat=repeat,
            provision=provision,
            seed=seed,
            fs=filesystems,
        )
        choice = choose(asked, environment, pair=gate)
        if environment is not None and not smoke:
            planned(choice, environment.profile, choice.kernels)  # what the board cannot do is refused now
        sides = [("--baseline", baseline), ("--candidate", candidate)]
        own = own_files(choice.suite) if choice.suite.file else {}
        given = [
            ("--suite", None if own else suite),
            ("--fs", filesystems or (",".join(choice.filesystems) if own and not gate else None)),
            *(sides if gate else [("--kernel", kernels)]),
        ]
        options = bench_options([*given, ("--repeat", repeat), ("--provision", provision), ("--seed", seed)])
        on = ",".join(choice.filesystems)
        about = f"{choice.suite.name} on {on}, kernel {kernels}"
        about = f"gate on {on}: {candidate} against {baseline}" if gate else about
        name = f"smoke, kernel {kernels}" if smoke else about
        return LavaJob(
            f"{'health check: ' if health_check else ''}fsjoule {name}",
            options + tuple(more or ()),
            device_type=named,
            device=place,
            priority=priority,
            hours=(1 if smoke else 12) if hours is None else hours,
            wait_s=_seconds(wait),
            without=() if environment is None else environment.does_without,
            own=own,
        )

    if each:
        cells: dict[str, str] = {}
        for label, name in product(listed(kernel), fs or chosen_suite(suite).filesystems):
            file = safe(f"{label.strip('/')}-{name}")
            if file in cells:
                raise ConfigError(f"two jobs would have the name {file}: {label} differs in a character only")
            cells[file] = suite_job(made(name, label))
        _write_each(cells, output)
    elif not smoke:
        _write((gate_job if gate else suite_job)(made(joined(fs), kernel)), output)
    elif environment is None:
        raise ConfigError("a smoke job logs in to the board", hint="give --lg-env, the board's environment file")
    else:
        from fsjoule.ci.lava.smoke import SmokeImage, login_of, smoke_job

        login_of(environment)  # before an image is built for nothing
        card = SmokeImage(_image(image, kernel, environment.profile.recipe))
        _write(smoke_job(made(joined(fs), kernel), environment, card), output)


def _check_kinds(
    *, gate: tuple[str | None, str | None], smoke: bool, each: bool, repeat: int | None, output: Path | None
) -> None:
    """Raise ConfigError for options that do not go together."""
    if (gate[0] is None) != (gate[1] is None):
        raise ConfigError("a gate has two sides", hint="give --baseline and --candidate")
    if sum((gate[0] is not None, smoke, each)) > 1:
        raise ConfigError("--smoke, --each, and --baseline with --candidate are jobs of different kinds: give one")
    if gate[0] is not None and repeat is not None:
        raise ConfigError("a gate measures until the answer is clear", hint="instead of --repeat: -- --budget BOOTS")
    if each and output is None:
        raise ConfigError("--each writes several files", hint="give --output, a folder")


@app.command("pull")
def pull(
    server: Annotated[str, typer.Argument(help="The LAVA server's address: https://lava.example.org")],
    job: Annotated[int, typer.Argument(min=1, help="The job's number.")],
    results: Annotated[Path, typer.Option(help="Where the run folder goes.")] = Path("results"),
) -> None:
    """Fetch the run of a LAVA job: its run folder if this computer can read it, else what the job's log kept of it.

    A run from a log has all figures and no traces. A token comes from FSJOULE_LAVA_TOKEN; public jobs need none. Exit
    code 7: the server cannot be reached, refuses, or has no such job. 2: the job has no measurements.

    Example: fsjoule lava pull https://lava.example.org 17, then: fsjoule index import results
    """
    import os

    from fsjoule.ci.lava.pull import TOKEN_VARIABLE, LavaServer
    from fsjoule.ci.lava.pull import pull as pull_run
    from fsjoule.model.labels import counted

    pulled = pull_run(LavaServer(server, os.environ.get(TOKEN_VARIABLE, "").strip()), job, results)
    what = "the run folder" if pulled.whole else "from the job's log, without traces"
    there = "there already" if pulled.known else "fetched"
    progress(f"{pulled.path}: {there}, {counted(pulled.measurements, 'measurement')}; {what}")


@app.command("connect", hidden=True)
def connect(place: Place, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """Become a client of the board's console."""
    from fsjoule.ci.lava import helpers

    helpers.connect(_entered(place, lg_env, wait, settings))


@app.command("power-on", hidden=True)
def power_on(place: Place, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """Acquire the place and switch its board on."""
    from fsjoule.ci.lava import helpers

    helpers.power_on(_entered(place, lg_env, wait, settings))


@app.command("power-off", hidden=True)
def power_off(place: Place, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """End the job's bench, switch the board off and release its place. A place that LAVA has not is left alone."""
    from fsjoule.ci.lava import guard

    guard.power_off(_entered(place, lg_env, wait, settings))


@app.command("hard-reset", hidden=True)
def hard_reset(place: Place, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """Acquire the place and switch its board off and on."""
    from fsjoule.ci.lava import helpers

    helpers.hard_reset(_entered(place, lg_env, wait, settings))


@app.command("flash", hidden=True)
def flash(place: Place, image: Path, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """Acquire the place and bring an image onto its board's card. The board is off then."""
    from fsjoule.ci.lava import helpers

    helpers.flash(_entered(place, lg_env, wait, settings), image)


@app.command("bench-shell", hidden=True)
def bench_shell(place: Place, results: Path, lg_env: LgEnv, wait: Wait = _WAIT, settings: Settings = None) -> None:
    """Acquire the place and become the shell in which a job measures."""
    from fsjoule.ci.lava import helpers

    helpers.open_shell(_entered(place, lg_env, wait, settings), results)


@app.command("overlay", hidden=True)
def overlay(url: str) -> None:
    """Fetch LAVA's overlay into this folder."""
    from fsjoule.ci.lava.helpers import fetch_overlay

    fetch_overlay(url, Path.cwd())


@app.command("meter", hidden=True)
def meter(lg_env: LgEnv) -> None:
    """Tell LAVA whether the meter is alive and hears the marks of its board, which runs."""
    from fsjoule.ci.lava.smoke import check_meter

    with lines_to(typer.echo):  # LAVA reads a command's stdout
        check_meter(lg_env)


@app.command("guard", hidden=True)
def guard(place: Place, job: int, lg_env: LgEnv) -> None:
    """Wait for the end of a job, and end what it leaves behind."""
    from fsjoule.ci.lava import guard

    guard.guard(_entered(place, lg_env, _WAIT, None), job)


def _seconds(wait: str | None) -> float:
    from fsjoule.lab.reservation import seconds

    return seconds("--wait", wait or _WAIT)


def _entered(place: str, lg_env: Path, wait: str | None, settings: list[str] | None) -> LavaBoard:
    from fsjoule.ci.lava import settings as carried

    bench = carried.LavaBoard(place, lg_env, carried.parsed(settings or []), _seconds(wait))
    carried.enter(bench)
    return bench


def _image(named: str | None, kernel: str, recipe: str) -> str:
    """The address of a card image."""
    if named is not None and "://" in named:
        return named
    if named is not None:
        return Path(named).resolve().as_uri()
    from fsjoule import images

    return images.build_card(kernel, "ext4", recipe=recipe).path.as_uri()


def _write_each(texts: Mapping[str, str], folder: Path | None) -> None:
    from fsjoule.store.files import check_writable

    assert folder is not None, "checked"
    check_writable(folder, "--output")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        _write(text, folder / f"{name}.yaml")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    check_file(output, "--output")
    write_text(output, text)
