"""`python -m faults`: a campaign. Says what it injects, checks what came of it, writes a table."""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from faults.kinds import KINDS
from faults.one import Outcome, inject
from faults.table import markdown


def main() -> int:
    asked = _arguments()
    kinds = _chosen(asked.kinds, exactly=asked.only is not None)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="fsjoule-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    order = [kinds[n % len(kinds)] for n in range(asked.n or len(kinds))]
    random.Random(asked.seed).shuffle(order)
    numbered = list(enumerate(order, 1)) if asked.only is None else [(asked.only, name) for name in kinds]
    print(
        f"{len(numbered)} faults of {len(set(order))} kinds, seed {asked.seed}, {asked.jobs} side by side, in {folder}"
    )
    outcomes = _so_far(folder / "faults.jsonl", asked.seed, numbered) if asked.only is None else []
    here = {outcome.number for outcome in outcomes}
    numbered = [each for each in numbered if each[0] not in here]
    started_s = time.monotonic()
    with ThreadPoolExecutor(asked.jobs) as pool, (folder / "faults.jsonl").open("a") as record:

        def one(number: int, name: str) -> Outcome:
            where = folder / f"{number:03d}-{name}"
            shutil.rmtree(where, ignore_errors=True)  # of a campaign that was killed
            return inject(KINDS[name], number, asked.seed, where, patience=asked.patience, keep=asked.keep)

        running = [pool.submit(one, number, name) for number, name in numbered]
        try:
            for done in as_completed(running):
                outcome = done.result()
                outcomes.append(outcome)
                record.write(json.dumps(asdict(outcome) | {"fine": outcome.fine}) + "\n")
                record.flush()
                of, done_now = len(here) + len(numbered), len(outcomes) - len(here)
                left_min = (time.monotonic() - started_s) / done_now * (of - len(outcomes)) / 60
                progress = f"[{len(outcomes):>3}/{of}, {left_min:.0f} min left]"
                print(f"{progress} #{outcome.number} {outcome.text()}", flush=True)
        except KeyboardInterrupt:
            for each in running:
                each.cancel()
            print("interrupted: the faults that are under way are brought to their end", flush=True)
    table = markdown(outcomes, seed=asked.seed)
    (folder / "faults.md").write_text(table)
    print(table)
    return 0 if len(outcomes) == len(here) + len(numbered) and all(each.fine for each in outcomes) else 1


def _so_far(record: Path, seed: int, numbered: list[tuple[int, str]]) -> list[Outcome]:
    """What an interrupted campaign has recorded. Exits if it was another campaign."""
    if not record.exists():
        return []
    kept = [json.loads(line) for line in record.read_text().splitlines()]
    outcomes = [Outcome(**{key: value for key, value in each.items() if key != "fine"}) for each in kept]
    if any(each.seed != seed or (each.number, each.kind) not in numbered for each in outcomes):
        sys.exit(f"{record} is of another campaign: give the seed, number and kinds of that one, or another folder")
    if outcomes:
        print(f"goes on: {len(outcomes)} of them are recorded")
    return outcomes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="faults", description="Injects faults into benches, and checks what comes of it."
    )
    parser.add_argument("-n", type=int, default=0, help="how many faults (default: one of each kind)")
    parser.add_argument("--seed", type=int, default=None, help="of order, phases and moments (default: a new one)")
    parser.add_argument("--jobs", type=int, default=2, help="labs side by side (default: 2)")
    parser.add_argument("--kinds", default="", help="only kinds that begin with one of these, a,b")
    parser.add_argument(
        "--only", type=int, default=None, help="the fault of this number of a campaign again; with --seed and --kinds"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="where everything goes (default: a temporary one); an interrupted campaign goes on in its own",
    )
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every limit, for a busy machine")
    parser.add_argument("--keep", action="store_true", help="keep the folders of faults that came out right, too")
    asked = parser.parse_args()
    asked.seed = secrets.randbits(32) if asked.seed is None else asked.seed
    return asked


def _chosen(given: str, *, exactly: bool) -> list[str]:
    names = tuple(part for part in given.split(",") if part)
    kinds = [name for name in KINDS if not names or (name in names if exactly else name.startswith(names))]
    if not kinds:
        sys.exit(f"no kind begins with {given}; there are: {', '.join(KINDS)}")
    return kinds


if __name__ == "__main__":
    # Where the parent ignores it (a shell's background job), the benches would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert threading.current_thread() is threading.main_thread()
    sys.exit(main())
