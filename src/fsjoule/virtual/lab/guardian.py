"""The first process of a virtual lab; `python -m fsjoule.virtual.lab.guardian LAB_DIRECTORY PIPE`.

A process cannot clean up after its own SIGKILL, so the lab has two heads. The supervisor starts and watches the
services. The guardian is the supervisor's parent. It only waits, and ends the rest of the lab when the supervisor has
ended in any way. If the guardian is killed, the supervisor ends the lab.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from fsjoule.host import process
from fsjoule.host.process_ref import ProcessRef, become_subreaper, end_descendants, ending
from fsjoule.virtual.lab.files import LabPaths, forget

_STOP_TIMEOUT_S: Final = 20.0
_LOOK_S: Final = 1.0


class _StopRequested(Exception):  # noqa: N818 - no error: a signal asks for the end
    pass


def guard(paths: LabPaths, pipe: int) -> int:
    """Run the supervisor and wait for its end. Returns its exit code."""
    become_subreaper()
    record = paths.read()
    if record is None:
        return 1
    paths.write(dataclasses.replace(record, guardian=ProcessRef.of(os.getpid())))
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, _request_stop)
    supervisor: subprocess.Popen[bytes] | None = None
    try:
        supervisor = process.start(
            [sys.executable, "-m", "fsjoule.virtual.lab.supervisor", paths.root, str(pipe)],
            log=paths.log("supervisor"),
            pass_fds=(pipe,),
        )
        os.close(pipe)
        status = _wait(supervisor, record.owner)
        paths.bury(record, f"its supervisor {ending(status)}, see {paths.log('supervisor')}")
    except _StopRequested:
        if supervisor is not None:
            process.stop(supervisor, timeout_s=_STOP_TIMEOUT_S)
    finally:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        end_descendants()
        forget(paths, paths.read() or record)
    return 0 if supervisor is None else supervisor.returncode


def _wait(supervisor: subprocess.Popen[bytes], owner: ProcessRef | None) -> int:
    """Wait for the supervisor's end. When the owner has ended, a stopped supervisor is continued, to end the lab."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return supervisor.wait(_LOOK_S)
        if owner is not None and not owner.alive():
            supervisor.send_signal(signal.SIGCONT)


def _request_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _StopRequested


if __name__ == "__main__":
    sys.exit(guard(LabPaths(Path(sys.argv[1])), int(sys.argv[2])))
