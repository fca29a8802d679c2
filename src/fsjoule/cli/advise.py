"""`fsjoule advise`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand

from fsjoule.cli.common import (
    Boards,
    Json,
    Wait,
    Wide,
    guest_time_board,
    out,
    print_json,
    progress,
    refuse,
    write_text,
)
from fsjoule.cli.options import argument, file_option, with_options
from fsjoule.errors import ConfigError
from fsjoule.runs.options import DEFAULT_KERNEL, DEFAULT_RESULTS, flag, given_options, option

if TYPE_CHECKING:
    from fsjoule.runs.advise import AdviceQuestion, Benches
    from fsjoule.verdicts.advice.evidence import AdviceEvidence

app = typer.Typer()
_BOARD: Final = "--lg-env"


class _BoardByDefault(TyperCommand):
    """`--lg-env` without a file is the virtual board in guest time. typer has no options whose value may be absent."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own types are private
        words = list[str]()
        for word, after in zip(args, [*args[1:], "-"], strict=False):
            words += [word, str(guest_time_board())] if word == _BOARD and after.startswith("-") else [word]
        return super().parse_args(ctx, words)


@dataclass(frozen=True, kw_only=True)
class _AdviceBenchOptions:
    """What only an answer takes that measures first."""

    lg_env: Path | None = option(
        "[FILE]",
        "Measure what is missing on this board (default without RUNS: the virtual board in guest time).",
        name=_BOARD,
    )
    repeat: int | None = option("N", "Boots that are measured (default: 2 in guest time, else 3).", min=1)
    results: Path | None = option("DIR", f"Where runs are found and put (default: {DEFAULT_RESULTS}).")
    boards: Boards = 1
    wait: Wait = None
    dry_run: bool = flag("Only say what is missing, and what measuring it takes.")


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(_AdviceBenchOptions):
    runs: list[Path] | None = argument("", "Run folders of one board, or folders that contain some.")
    profile: str | None = option("NAME|FILE", "What the device does. Without it the profiles are listed.")
    fs: str | None = option("NAME[,NAME]", "Only these filesystems (measured: the suite's).")
    kernel: str | None = option("", f"This kernel, if the runs have several (measured: {DEFAULT_KERNEL}).")
    storage: str | None = option("", "This storage device (measured: card), or several: card,nand.")
    weights: str | None = option("AXIS=N[,AXIS=N]", "Make a score: energy, loss, wait, wear, mount, with weights.")
    wide: Wide = False
    json_output: Json = False
    page: Path | None = file_option("Write a self-contained HTML page to FILE.", name="-o --page")


@app.command("advise", cls=_BoardByDefault)
@with_options
def advise(asked: AdviseOptions) -> None:
    """Which filesystem should this board run? A usage profile and what was measured become joules, losses and waits.

    With RUNS the answer is computed from them. Without RUNS it measures what is missing, in runs of its own: it says
    first what that takes, and the same command goes on after an interruption. A filesystem that lost synced files comes
    last, unless --weights decide.

    Exit code: 0 whatever the answer. Errors: 2 the input, 4 the lab, 130 interrupted.

    Example: fsjoule advise --profile logger --lg-env env/deterministic.yaml -o advice.html
    """
    if asked.profile is None:
        _list_profiles(asked=bool(asked.runs or asked.lg_env), json_output=asked.json_output)
        return
    from fsjoule.suites.profile import profile_of
    from fsjoule.verdicts.advice.advise import advise as advised
    from fsjoule.verdicts.advice.advise import parse_weights

    name, usage = profile_of(asked.profile)
    weights = parse_weights(asked.weights) if asked.weights is not None else None
    if asked.runs:
        hint = "leave RUNS out to measure what is missing"
        refuse("RUNS are answered from as they are, without", given_options(asked, _AdviceBenchOptions), hint=hint)
        evidence = _recorded(asked.runs, asked.kernel, asked.storage, asked.fs)
    else:
        from fsjoule.lab import place_request, read_environment
        from fsjoule.runs.advise import answered, question

        about = question(
            name,
            usage,
            read_environment(asked.lg_env or guest_time_board(), place_request(None, asked.wait, None)),
            filesystems=asked.fs,
            kernel=asked.kernel or DEFAULT_KERNEL,
            storage=asked.storage,
            repeat=asked.repeat,
            results=asked.results or Path(DEFAULT_RESULTS),
            boards=asked.boards,
        )
        if _measured(about, asked):
            return
        evidence = answered(about)
    advice = advised(evidence, name, usage, weights=weights)
    if asked.json_output:
        from fsjoule.report.advice.tables import to_document

        print_json(to_document(advice))
    else:
        from fsjoule.report.advice.tables import print_advice

        print_advice(out, advice, wide=asked.wide)
    if asked.page:
        from fsjoule.report.advice.page import render_page

        write_text(asked.page, render_page(advice, asked.page))
        progress(f"page  {asked.page}")


def _list_profiles(*, asked: bool, json_output: bool) -> None:
    """Show the profiles; a ConfigError names them if something was `asked` that needs one."""
    from fsjoule.suites.profile import profile_names, profile_of

    if asked:
        choices = ", ".join(profile_names())
        raise ConfigError(
            "no --profile says what the device does", hint=f"choose from {choices}, or name a file: own.toml"
        )
    titles = {name: profile_of(name)[1].title for name in profile_names()}
    if json_output:
        print_json(titles)
        return
    for name, title in titles.items():
        out.print(f"{name:<14}{title}", highlight=False, soft_wrap=True)
    out.print("own.toml      your own (docs/advice.md)", highlight=False)


def _recorded(runs: list[Path], kernel: str | None, storage: str | None, fs: str | None) -> AdviceEvidence:
    """What these runs have of the filesystems. Raises ConfigError, ResultError."""
    from fsjoule.filesystems import named_filesystems
    from fsjoule.runs.advise import with_board
    from fsjoule.store.run_folders import named_folders
    from fsjoule.verdicts.advice.evidence import evidence, only

    found = with_board(evidence(named_folders(runs), kernel=kernel, storage=storage))
    wanted = named_filesystems(fs, lenient=True)
    if fs is not None and not wanted:
        raise ConfigError("--fs names no filesystem", hint="for example --fs ext4,btrfs")
    return only(found, wanted) if wanted else found


def _measured(about: AdviceQuestion, asked: AdviseOptions) -> bool:
    """Say what is missing and what it takes, then measure it; True if that was all. Raises typer.Exit of a bench."""
    from fsjoule.cli.bench import bench_program
    from fsjoule.host.process import to_its_end
    from fsjoule.runs.advise import benches, measure

    plan = benches(about)
    lines = _cost_lines(about, plan)
    if asked.dry_run:
        if asked.json_output:
            missing = [asdict(one) for one in plan.missing]
            print_json({"missing": missing, "cost": asdict(plan.cost), "learned_from_runs": plan.learned_from})
        else:
            out.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        return True
    for line in lines:
        progress(line)
    # The benches' output is no answer: it goes where progress goes.
    waiting = ("--wait", asked.wait) if asked.wait else ()
    code = measure(about, plan.missing, lambda words: to_its_end(bench_program([*words, *waiting]), output=sys.stderr))
    if code:
        progress("not all was measured: the same command goes on")
        raise typer.Exit(code)
    return False


def _cost_lines(asked: AdviceQuestion, found: Benches) -> list[str]:
    from fsjoule.model import CARD, MIB
    from fsjoule.report.numbers import seconds_text
    from fsjoule.verdicts.advice.parts import POWER_LOSS_SUITE

    board = asked.environment.profile
    where = board.name if asked.storage == CARD else f"{board.name}'s {asked.storage}"
    lines = [f"{asked.name} on {where}{' (simulated)' if board.simulated else ''}: {', '.join(asked.filesystems)}"]
    for one in found.missing:
        begun = f", goes on in {one.begun}" if one.begun else ""
        lines.append(
            f"to be measured: {', '.join(one.workloads)} of {', '.join(one.filesystems)}, {one.repeat} times{begun}"
        )
    if found.missing:
        cost = found.cost
        basis = f"learned from {found.learned_from} of its runs" if found.learned_from else "a guess: no earlier run"
        length = seconds_text(cost.seconds / asked.boards)
        length += f" on {asked.boards} boards at once" if asked.boards > 1 else ""
        lines.append(
            f"this takes about {length}, {cost.written_bytes / MIB:,.0f} MiB written and "
            f"{cost.energy_j:,.0f} J of the board ({basis}), {cost.measurements} measurements in {cost.boots} boots"
        )
    else:
        lines.append(f"all is measured already, in {asked.results}")
    if asked.no_cuts:
        lines.append(f"files lost in power cuts are not measured: {asked.no_cuts}")
    elif asked.environment.virtual_lab is None and any(one.suite == POWER_LOSS_SUITE for one in found.missing):
        lines.append("whether its storage has a volatile cache, which a power cut empties, is not known: the cuts tell")
    return lines
