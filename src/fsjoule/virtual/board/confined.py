"""Runs a program that can change some files only: `python -I -S confined.py [--bind PORT] PATH... -- PROGRAM...`.

Landlock (https://docs.kernel.org/userspace-api/landlock.html, Linux 5.13) is for programs that confine themselves: what
is open stays open, a child inherits it, and nobody can undo it. Without it in the kernel the program runs as it is.
Below a PATH that is a folder files may be made and removed, too. From Linux 6.7 on it makes no TCP connections and
listens at PORT only, and from 6.12 on it signals no process but its own children. It can look into no other process in
any case, as into its parents' environments.
"""

from __future__ import annotations

import ctypes
import os
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PR_SET_NO_NEW_PRIVS = 38
_PATH_BENEATH, _NET_PORT = 1, 2
# LANDLOCK_ACCESS_FS_*: all that changes something, and the version of the interface that has it first.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: _TRUNCATE}
_BIND_TCP, _CONNECT_TCP = 1, 2
_NET_SINCE, _SCOPE_SINCE = 4, 6
_SCOPE_SIGNALS = 2
_DEVICES = ("/dev/null", "/dev/zero")


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def confine(paths: list[str], port: int | None) -> bool:
    """Confine this process. Returns whether the kernel can. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    changes = sum(bits for since, bits in _CHANGES.items() if since <= version)
    ruleset = _Ruleset(
        changes,
        _BIND_TCP | _CONNECT_TCP if version >= _NET_SINCE else 0,
        _SCOPE_SIGNALS if version >= _SCOPE_SINCE else 0,
    )
    size = 8 if version < _NET_SINCE else 16 if version < _SCOPE_SINCE else 24
    rules = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    for path in paths:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = changes if os.path.isdir(path) else changes & (_WRITE_FILE | _TRUNCATE)  # noqa: PTH112 - no imports
        rule = _PathRule(allowed, descriptor)
        _checked(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(descriptor)
    if port is not None and version >= _NET_SINCE:
        _checked(libc.syscall(_ADD_RULE, rules, _NET_PORT, ctypes.byref(_PortRule(_BIND_TCP, port)), 0))
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)
    return True


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    end = sys.argv.index("--")
    words, program = sys.argv[1:end], sys.argv[end + 1 :]
    bound = int(words[1]) if words[:1] == ["--bind"] else None
    confine([*words[0 if bound is None else 2 :], *_DEVICES], bound)
    os.execvp(program[0], program)  # noqa: S606 - an argument list
