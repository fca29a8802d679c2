"""A command without root's power over files: it may do with them what their owner and their mode say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

# It stays root, who owns the project and its Python: a user `nobody` may not even start them below /root.
NO_POWERS: Final = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
SOMEBODY_ELSE: Final = 65534
_USER: Final = 61000
# In the namespace the files of root are the user's.
_BECOME: Final = f"""\
passwd=$(mktemp)
{{ cat /etc/passwd; echo plain:x:{_USER}:{_USER}::/:/bin/sh; }} >"$passwd"
chmod 644 "$passwd"
mount --bind "$passwd" /etc/passwd
rm "$passwd"
exec unshare --map-user={_USER} --map-group={_USER} "$@"
"""


def as_user() -> list[str]:
    """Words that let a command run as a user who is not root, of whom the computer knows, and who owns root's files.

    It skips where the kernel refuses that, as in many containers; a fresh machine of `make test-fresh` allows it.
    """
    words = [] if os.geteuid() else ["unshare", "--mount", "sh", "-ec", _BECOME, "sh"]
    tried = subprocess.run(
        [*words, "unshare", "--map-root-user", "true"], capture_output=True, text=True, timeout=60, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"this computer refuses user namespaces: {tried.stderr.strip()}")
    return words


def run_unprivileged(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for it; its output is text."""
    return subprocess.run(
        [*(NO_POWERS if os.geteuid() == 0 else ()), *argv],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
