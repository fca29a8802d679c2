"""What people do: Ctrl-C, a second bench, a place or a meter taken away, typing on the console, a closed terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Final

from faults.act import Act, signalled, writers
from faults.scene import Bench, Scene
from faults.watch import Phase, await_condition, await_phase
from fsjoule.host.process import stop

SOMEBODY: Final = "elsewhere/somebody"
OTHER_METER: Final = "OTHER"
_SOMEBODY: Final = {"LG_HOSTNAME": "elsewhere", "LG_USERNAME": "somebody"}
_SECOND_LIMIT_S: Final = 180.0
_SECOND_REFUSED: Final = r"held by|another (run|bench)|in use|owner|belongs to"
_END_LIMIT_S: Final = 200.0


# ------------------------------------------------------------------------------------------------- ends of the bench


def ctrl_c(times: int) -> Act:
    """Ctrl-C, again and again if it does not end at once, at random gaps."""

    def act(scene: Scene, bench: Bench) -> str:
        gaps = [round(scene.rng.choice([0.0, 0.4, scene.rng.uniform(0.0, 4.0)]), 2) for _ in range(times - 1)]
        bench.send_group(signal.SIGINT)
        for gap in gaps:
            time.sleep(gap)
            bench.send_group(signal.SIGINT)
        return "Ctrl-C" + (f", again after {', '.join(map(str, gaps))} s" if gaps else "")

    return act


def bench_signalled(sig: signal.Signals, *, group: bool = False) -> Act:
    """A signal to the bench alone, as a CI's runner sends it, or to its group, as a terminal does that closes."""

    def act(_scene: Scene, bench: Bench) -> str:
        (bench.send_group if group else bench.send)(sig)
        return f"{sig.name} to the bench{' and what it has started' if group else ''}"

    return act


# ------------------------------------------------------------------------------------------------- the place's users


def place_kicked(*, taken: bool, and_killed: bool = False) -> Act:
    """Somebody releases the place by force, and takes it, or not; and perhaps the board fails at that moment.

    From then on the board is not the bench's: it must not be switched.
    """

    def act(scene: Scene, bench: Bench) -> str:
        _client(scene, "release", "--kick")
        if taken:
            _client(scene, "acquire", somebody=True)
            scene.mending.callback(_client, scene, "release", "--kick")
        before = _power(scene)
        said = f"the place was kicked{f' and taken by {SOMEBODY}' if taken else ''}, the board's power {before}"
        if and_killed:
            said += f"; {signalled('qemu', signal.SIGKILL)(scene, bench)}"
        scene.afterwards.append(partial(_hands_off, scene, before, taken=taken))
        return said

    return act


def _client(scene: Scene, *arguments: str, somebody: bool = False) -> str:
    variables = _SOMEBODY if somebody else {}
    done = scene.command("labgrid-client", "-p", "virtual", *arguments, variables=variables)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def _power(scene: Scene) -> tuple[str, int]:
    """Whether it is on, and how often it was switched on."""
    board = scene.board()
    return ("unknown", 0) if board is None else (board["power"], board["power_ons"])


def _hands_off(scene: Scene, before: tuple[str, int], *, taken: bool) -> list[str]:
    complaints: list[str] = []
    if (now := _power(scene)) != before:
        complaints.append(f"the board's power was {before} when the place was lost, and is {now}")
    if taken and f"acquired: {SOMEBODY}" not in (shown := _client(scene, "show")):
        complaints.append(f"the place is not {SOMEBODY}'s any more: {shown}")
    return complaints


def second_bench(act_before: Act | None = None) -> Act:
    """Another bench of the same user on the same lab, which is to be refused; perhaps after something else."""

    def act(scene: Scene, bench: Bench) -> str:
        said = f"{act_before(scene, bench)}, then " if act_before else ""
        second = scene.bench()
        exit_code = second.wait(_SECOND_LIMIT_S)
        if exit_code != 4:
            scene.findings.append(f"the second bench ended with {exit_code}, not 4; see {second.output}")
        elif not re.search(_SECOND_REFUSED, second.text()):
            scene.findings.append(f"the second bench does not say whose the lab is; see {second.output}")
        return f"{said}a second bench"

    return act


# ------------------------------------------------------------------------------------------------------------ meters


def meter_swapped(scene: Scene, bench: Bench) -> str:
    """Another meter on the same tty: the first is pulled out, one with another number and shunt is put in."""
    said = signalled("meter", signal.SIGKILL)(scene, bench)
    record = scene.lab
    assert record is not None
    devices = Path(record.devices)
    other = scene.meter(OTHER_METER, "--shunt-uohm", "50000")
    argv = [
        str(other),
        "--feed",
        devices / "feed",
        "--stream-link",
        devices / "meter",
        "--marks-link",
        devices / "marks",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    scene.mending.callback(stop, process)
    return f"{said}, and a meter {OTHER_METER} in its place"


def resumed_with_another_meter(scene: Scene) -> Bench:
    """A run is interrupted, and gone on with at a lab that has another meter by now."""
    bench = scene.bench()
    await_phase(scene, bench, Phase.STORING)
    bench.send_group(signal.SIGINT)
    bench.wait(_END_LIMIT_S)
    folder = scene.run_folder()
    assert folder is not None, bench.text()
    return scene.bench(resume=folder, serial=OTHER_METER)


# ------------------------------------------------------------------------------------------- console, card, terminal


def typed(line: str, what: str) -> Act:
    """Somebody types on the board's console, past the exporter."""

    def act(scene: Scene, _bench: Bench) -> str:
        record = scene.lab
        assert record is not None
        descriptor = os.open(Path(record.devices) / "console", os.O_WRONLY | os.O_NOCTTY)
        try:
            os.write(descriptor, f"\n{line}\n".encode())
        finally:
            os.close(descriptor)
        return what

    return act


def card_writer_hangs(scene: Scene, bench: Bench) -> str:
    """What writes the card, on the exporter's side, stands still, as with a card reader that hangs."""
    await_condition(bench, lambda: bool(writers(scene)), "the card was written")
    found = writers(scene)
    for writer in found:
        scene.closing.callback(writer.send, signal.SIGCONT)
        writer.send(signal.SIGSTOP)
    return f"what writes the card stands still ({', '.join(str(each.pid) for each in found)})"


def full_terminal(scene: Scene) -> str:
    scene.stdout = os.open("/dev/full", os.O_WRONLY)
    scene.closing.callback(os.close, scene.stdout)
    return "stdout is /dev/full"


def piped_terminal(scene: Scene) -> str:
    """The bench's output goes to a program that will not read it to its end."""
    scene.reader, scene.stdout = os.pipe()
    scene.closing.callback(os.close, scene.stdout)
    return ""


def close_terminal(scene: Scene, _bench: Bench) -> str:
    os.close(scene.reader)
    return "what read its output has ended"
