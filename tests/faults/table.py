"""The campaign as a table: one row a kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from faults.one import CHECKS, Outcome


def markdown(outcomes: Sequence[Outcome], *, seed: int) -> str:
    """One row a kind: how often, exit codes, seconds until the bench ended, and for each check how often it held."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    head = ["kind", "times", "exit codes", "seconds", *CHECKS, "resumed", "fine"]
    rows = [_row(kind, of_kind) for kind, of_kind in sorted(by_kind.items())]
    fine = sum(outcome.fine for outcome in outcomes)
    lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
    return f"seed {seed}: {fine} of {len(outcomes)} faults came out right\n\n" + "\n".join(lines) + "\n"


def _row(kind: str, outcomes: Sequence[Outcome]) -> list[str]:
    codes = Counter(str(each.exit_code) for each in outcomes)
    seconds = sorted(each.seconds for each in outcomes)
    return [
        kind,
        str(len(outcomes)),
        ", ".join(f"{code} ({count})" if len(codes) > 1 else code for code, count in codes.most_common()),
        f"{seconds[0]:.0f} to {seconds[-1]:.0f}",
        *(_held(check, outcomes) for check in CHECKS),
        str(sum(each.resumed for each in outcomes)),
        str(sum(each.fine for each in outcomes)),
    ]


def _held(check: str, outcomes: Iterable[Outcome]) -> str:
    """How often it held, of how often it was made."""
    made = [each.complaints[check] for each in outcomes if check in each.complaints]
    held = sum(not each for each in made)
    return "-" if not made else str(held) if held == len(made) else f"**{held} of {len(made)}**"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
