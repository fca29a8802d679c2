"""What a console says of a boot that does not come to its login: a loader's last words, a loop, an Oops, no text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

# A message that ends the wait for a board, on any board, and its meaning.
_MEANINGS: Final = {
    r"SPL: failed to boot from all boot devices": "the first loader (SPL) found no U-Boot behind it on the card",
    r"Bad (?:Data|Header) (?:CRC|Checksum)": "U-Boot found the kernel damaged: too large for its place in memory, or "
    "damaged on the card",
    r"Bad Linux ARM(?:64)? z?Image magic!|Wrong Image Format for boot\w+ command": "U-Boot does not know the format of "
    "the kernel",
    r"Skipping \S+ for failure retrieving \S+": "U-Boot cannot read a file that extlinux.conf names",
    r"### ERROR ### Please RESET the board ###": "U-Boot stopped, because it gave up and cannot reset this board",
    r"device-mapper: verity: \S+ (?:data|metadata) block \d+ is corrupted": "dm-verity refused a block of the root: "
    "the card is damaged, or its root hash is another image's",
    # Of initramfs-tools, dracut and systemd: each waits for somebody at the console.
    r"ALERT! +\S+ does not exist": "the initramfs found no root",
    r"You are in emergency mode|Entering emergency mode": "the root came up without all that it needs",
}
_EXPLAINED: Final = [(re.compile(pattern), meaning) for pattern, meaning in _MEANINGS.items()]
FAILURE: Final = "|".join(_MEANINGS)

# On a board that boots from its card: U-Boot tries the network, or shows its prompt.
_GAVE_UP: Final = r"BOOTP broadcast \d+|Config file not found"
_PROMPT: Final = r"(?:=|U-Boot)>"
NOTHING_FOUND: Final = rf"{_GAVE_UP}|(?:\r\n|\n\r){_PROMPT} "
_NO_TABLE: Final = re.compile(r"No partition table|Couldn't find partition mmc")
_FOUND: Final = re.compile(
    r"Found (?:U-Boot script )?/(?:boot/)?(?:extlinux/extlinux\.conf|boot\.scr)|Booting bootflow '\S+' with extlinux"
)
_STAMP: Final = r"^(?:\[ *[\d.]+\](?:\[ *[CT]\d+\])? )?"
# How often one boot says each. U-Boot's command `version` prints the banner without empty lines around it:
# https://source.denx.de/u-boot/u-boot/-/blob/v2025.01/lib/display_options.c
# Makers' U-Boots have words before the year. Some kernels repeat theirs when another console takes over.
_BANNERS: Final = {
    r"^NOTICE: +BL31: v": 1,
    r"^U-Boot [ST]PL 20\d\d\.": 1,
    r"(?<=\n\n)U-Boot (?![ST]PL)\S*20\d\d\..*(?=\n\n)": 1,
    r"^barebox 20\d\d\.": 1,
    rf"{_STAMP}Linux version \d": 2,
}
# A board that sets up its environment or its power, or whose watchdog bit, begins twice and boots.
_BEGINS_OF_A_BOOT: Final = 2
_OOPS: Final = re.compile(
    r"Internal error: .*|Unable to handle kernel .*|BUG: unable to handle .*|BUG: kernel NULL pointer .*"
    r"|Oops(?: -|:| \[#).*|SError Interrupt on .*|kernel BUG at .*|general protection fault.*"
)
_SOME_TEXT: Final = 200
_LAST_TEXT: Final = 1000
# Of any language: what is no UTF-8 was replaced.
_TEXT: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")


def loop(said: str, restarts: int = 0) -> str:
    """Words for a board that begins a third time, and after as many further `restarts` as it may; else empty."""
    for banner, once in _BANNERS.items():
        starts = re.findall(f"{banner}.*", said, re.MULTILINE)
        begins = math.ceil(len(starts) / once)
        if begins > _BEGINS_OF_A_BOOT + restarts:
            return f"it starts again and again: at least {begins} times so far ({starts[-1].strip()})"
    return ""


def oops(said: str) -> str:
    """Words for a kernel that went wrong without a panic; empty if it did not say so."""
    found = _OOPS.search(said)
    return f"the kernel failed and went on: {found[0].strip()}" if found else ""


def is_garbled(said: str) -> bool:
    """Whether the console's last output is no text, as at a wrong speed."""
    last = said[-_LAST_TEXT:]
    return len(last) >= _SOME_TEXT and len(_TEXT.findall(last)) < len(last) * 2 / 3


# The first program of a card of fsjoule's gives up (images/initramfs/init), after a line of mount and 8 of the kernel;
# of another card the kernel itself.
_NO_ROOT: Final = re.compile(
    rf"{_STAMP}(?:initramfs: (?P<initramfs>.+)|.*VFS: (?P<kernel>Unable to mount root fs on \S+))"
)
_LINES_BEFORE: Final = 9
_NO_MOUNT: Final = re.compile(r"cannot mount \S+ as (\w+)")
# Drivers, too, tell of unknown parameters. A filesystem's line begins with its name.
_OF_A_FILESYSTEM: Final = r"[A-Za-z0-9]+(?:-fs)?\b.*\((?:device )?\w+\)"
# A filesystem that this kernel cannot mount, whatever is tried: mount options, features and sizes of all of them.
_UNKNOWN: Final = re.compile(
    r"unknown (?:[\w-]+ ){,3}(?:features|mount option)|unsupported (?:\w+ ){,3}(?:features|checksum)|"
    r"unrecogni[sz]ed mount option|unknown parameter (?!.*ignored)|cannot be safely mounted by this kernel|"
    r"mounted without CONFIG_|format support not enabled|incompatible feature .*upgrade kernel|"
    r"compression. This is not supported|not yet supported for page size|"
    r"(?:bad block size|with blocksize|invalid log_blocksize) \(?\d",
    re.IGNORECASE,
)


def root_failure(said: str) -> tuple[str, bool]:
    """Why a kernel found no root, in the initramfs's words and the filesystem's own, and whether it never will.

    Empty if that is not why it panicked.
    """
    lines = said.split("\n")
    causes = [(number, found) for number, line in enumerate(lines) if (found := _NO_ROOT.match(line))]
    if not causes:
        return "", False
    last, found = causes[-1]
    why = (found["initramfs"] or found["kernel"]).strip()
    mounting = _NO_MOUNT.match(why)
    if found["initramfs"] and not mounting:
        return why, False
    # ext4's also mounts ext2.
    begin = re.escape(mounting[1].rstrip("234")) if mounting else _OF_A_FILESYSTEM
    for line in lines[max(last - _LINES_BEFORE, 0) : last]:
        words = re.sub(_STAMP, "", line).strip()
        if re.match(begin, words, re.IGNORECASE) and _UNKNOWN.search(words):
            return f"{words} ({why})", True
    return (why, False) if mounting else ("", False)


def last_words(lines: Sequence[str]) -> str:
    """An addition to the message about a board that went silent while it booted, by its console's last line."""
    last = lines[-1] if lines else ""
    if last.startswith("Trying to boot from"):
        return f": the first loader (SPL) started what is in U-Boot's place, and nothing followed ({last})"
    if last.startswith("Starting kernel"):
        return f": the kernel has not said a word ({last}); its console, its device tree or its memory may be wrong"
    return ""


def reason(message: str, said: str) -> str:
    """The meaning of the message at which the wait ended, after everything that the board `said`."""
    message = message.strip()
    for pattern, meaning in _EXPLAINED:
        if pattern.search(message):
            return f"{meaning} ({message})"
    if re.fullmatch(f"{_GAVE_UP}|{_PROMPT}", message):
        if _NO_TABLE.search(said):
            found = "there is no partition table on the card"
        elif not _FOUND.search(said):
            found = "there is no extlinux/extlinux.conf on the card's boot partition"
        else:
            found = "it gave up what the card names"
        return f"U-Boot found nothing to boot: {found} ({message})"
    return message
