"""The set-up for a computer that has Python and nothing else yet: `python3 -m fsjoule.host.setup --for bench`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from fsjoule.errors import FsjouleError, HostError
from fsjoule.host.interrupts import Interrupted
from fsjoule.host.setup.install import set_up
from fsjoule.host.setup.needs import purposes
from fsjoule.host.setup.steps import Steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="fsjoule.host.setup", description="Install what a purpose of fsjoule needs.")
    parser.add_argument("--for", dest="purpose", choices=list(purposes()), default="bench")
    parser.add_argument("--log", type=Path, required=True, help="file that gets what the programs say")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    asked = parser.parse_args()
    return ended(lambda: set_up(asked.purpose, Steps(asked.log), yes=asked.yes))


def ended(body: Callable[[], object]) -> int:
    """The exit code of a set-up; what went wrong is said on stderr."""
    try:
        body()
    except FsjouleError as error:
        print(f"set-up: {error}", file=sys.stderr)  # noqa: T201 - the set-up has nothing but Python yet
        return error.exit_code
    except OSError as error:
        print(f"set-up: {error}", file=sys.stderr)  # noqa: T201
        return HostError.exit_code
    except Interrupted as signal:
        return 128 + signal.number
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
