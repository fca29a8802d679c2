"""What a console says of a boot that does not come to its login: a loader's last words, a loop, an Oops, no text."""

from __future__ import annotations

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
# A boot says each once, in pieces of one line; some kernels repeat theirs when another console takes over.
_STAMP: Final = r"^(?:\[ *[\d.]+\](?:\[ *[CT]\d+\])? )?"
_BANNERS: Final = {
    r"^NOTICE: +BL31: v": 1,
    r"^U-Boot [ST]PL 20\d\d\.": 1,
    r"^U-Boot (?![ST]PL)\S*20\d\d\.": 1,  # makers' have words before the year
    r"^barebox 20\d\d\.": 1,
    rf"{_STAMP}Linux version \d": 2,
}
_OOPS: Final = re.compile(
    r"Internal error: .*|Unable to handle kernel .*|BUG: unable to handle .*|BUG: kernel NULL pointer .*"
    r"|Oops(?: -|:| \[#).*|SError Interrupt on .*|kernel BUG at .*|general protection fault.*"
)
_SOME_TEXT: Final = 200
_LAST_TEXT: Final = 1000
# Of any language: what is no UTF-8 was replaced.
_TEXT: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")


def loop(said: str, restarts: int = 0) -> str:
    """Words for a board that starts again and again, more often than it may; empty for one that does not."""
    for banner, once in _BANNERS.items():
        starts = re.findall(f"{banner}.*", said, re.MULTILINE)
        if len(starts) > once * (1 + restarts):
            return f"it starts again and again: {len(starts)} times so far ({starts[-1].strip()})"
    return ""


def oops(said: str) -> str:
    """Words for a kernel that went wrong without a panic; empty if it did not say so."""
    found = _OOPS.search(said)
    return f"the kernel failed and went on: {found[0].strip()}" if found else ""


def is_garbled(said: str) -> bool:
    """Whether the console's last output is no text, as at a wrong speed."""
    last = said[-_LAST_TEXT:]
    return len(last) >= _SOME_TEXT and len(_TEXT.findall(last)) < len(last) * 2 / 3


# The first program of a card of fsjoule's gives up (images/initramfs/init); of another card the kernel itself.
_NO_ROOT: Final = re.compile(r"^initramfs: (.+)|VFS: (Unable to mount root fs on \S+)", re.MULTILINE)
# A filesystem that this kernel cannot mount, whatever is tried: mount options, features and sizes of all of them.
_UNKNOWN: Final = re.compile(
    _STAMP + r"(.*(?:unknown (?:[\w-]+ )*(?:features|mount option)|unsupported (?:\w+ )*(?:features|checksum)|"
    r"unrecogni[sz]ed mount option|unknown parameter (?!.*ignored)|cannot be safely mounted by this kernel|"
    r"mounted without CONFIG_|format support not enabled|incompatible feature .*upgrade kernel|"
    r"compression. This is not supported|not yet supported for page size|"
    r"(?:bad block size|with blocksize|invalid log_blocksize) \(?\d).*)",
    re.MULTILINE | re.IGNORECASE,
)
_OF_DEVICE: Final = re.compile(r"\((?:device )?(\w+)\)")


def root_failure(said: str) -> tuple[str, bool]:
    """Why a kernel found no root, in the initramfs's words and the filesystem's own, and whether it never will.

    Empty if that is not why it panicked.
    """
    matches = list(_NO_ROOT.finditer(said))
    if not matches:
        return "", False
    of_initramfs, of_kernel = matches[-1].groups(default="")
    # Lines about other devices are of filesystems that were mounted, or are not needed.
    root = re.search(r"/dev/(\w+)(?![\w/])", of_initramfs)
    for unknown in _UNKNOWN.findall(said):
        device = _OF_DEVICE.search(unknown)
        if not (root and device) or device[1] == root[1]:
            return f"{unknown.strip()} ({(of_initramfs or of_kernel).strip()})", True
    return of_initramfs.strip(), False


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
