"""Data images of read-only filesystems: files in the board's memory become an image, which goes onto scratch.

The files have the contents of the board's own programs: what is compressed has to look like what devices have. fio's
random bytes cannot be compressed, and zeros say nothing of a compressor.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fsjoule.bench.onboard import marks as onboard
from fsjoule.model import KIB, MIB
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Shell

FOLDER: Final = f"{onboard.DIRECTORY}/image"
_IMAGE: Final = f"{onboard.DIRECTORY}/image.img"
_SIZE: Final = f"{onboard.DIRECTORY}/image.size"
TIMEOUT_S: Final = 900.0
# Of an image that is mounted, not read.
MOUNTED_BYTES: Final = MIB

# With dm-verity the device that is mounted is this one.
VERITY_NODE: Final = "/dev/mapper/fsjoule-image"
CLOSE_ARGV: Final = ("sh", "-c", "! dmsetup info fsjoule-image || dmsetup remove --verifyudev --retry fsjoule-image")

# Each file gets as many bytes of programs as it has. `cat` ends by a signal, and `xargs` says so.
_FILL: Final = """
for file in "$1"/*; do
    size=$(stat -c %s "$file")
    while find /usr/bin /usr/sbin /usr/lib -xdev -type f | sort | xargs cat 2>/dev/null; do :; done |
        head -c "$size" >"$1.part" && mv "$1.part" "$file" || exit
done
"""
_WRITE: Final = """
size=$(stat -c %s "$1") room=$(cat "/sys/class/mtd/${2##*/}/size" 2>/dev/null || blockdev --getsize64 "$2")
if [ "$size" -gt "$room" ]; then
    echo "the image has $size bytes, and $2 has $room: nothing was written"
    exit 1
fi
echo "$size" >"$3"
"""
_ONTO_DISK: Final = 'dd if="$1" of="$2" bs=1M conv=fsync 2>/dev/null'


FOLDER_ARGVS: Final = (("rm", "-rf", FOLDER, _IMAGE, _SIZE), ("mkdir", "-p", FOLDER))
ONE_FILE_ARGV: Final = ("dd", "if=/dev/zero", f"of={FOLDER}/programs", "bs=1M", f"count={MOUNTED_BYTES // MIB}")
FILL_ARGV: Final = ("sh", "-c", _FILL, "sh", FOLDER)
CLEAR_ARGV: Final = ("rm", "-rf", FOLDER, _IMAGE)

# The hash tree goes behind the image. veritysetup's words are kept, so that those of an error can be read.
_HASH: Final = """
blocks=$((($(stat -c %s "$1") + 4095) / 4096))
truncate -s $((blocks * 4096)) "$1" || exit  # busybox's rounds nothing
veritysetup format --no-superblock --hash sha256 --salt 00 --data-block-size 4096 --hash-block-size 4096 \
    --data-blocks "$blocks" --hash-offset "$((blocks * 4096))" "$1" "$1" >"$1.said" 2>&1 || { cat "$1.said"; exit 1; }
hash=$(sed -n 's/^Root hash:[[:blank:]]*//p' "$1.said")
echo "0 $((blocks * 8)) verity 1 $2 $2 4096 4096 $blocks $blocks sha256 $hash 00" >"$1.table"
"""
# A board without udev gets the node from dmsetup.
_OPEN: Final = 'dmsetup create fsjoule-image --readonly --verifyudev --table "$(cat "$1.table")"'


def image_argvs(kind: Filesystem, device: str, identity: UUID | None, files_bytes: int) -> list[tuple[str, ...]]:
    """The programs that make an image of the folder's files and write it onto `device`."""
    made = kind.image_argvs(FOLDER, _IMAGE, files_kib=files_bytes // KIB, identity=identity)
    write = ("sh", "-c", _WRITE + (kind.write or _ONTO_DISK), "sh", _IMAGE, device, _SIZE)
    if not kind.verity:
        return [*made, write]
    return [*made, ("sh", "-c", _HASH, "sh", _IMAGE, device), write, ("sh", "-c", _OPEN, "sh", _IMAGE)]


def image_bytes(shell: Shell) -> int | None:
    """The size of the image that was made last in this measurement; None if none was."""
    answer = shell.run(("cat", _SIZE))
    return int(answer.stdout) if answer.exit_code == 0 and answer.stdout.strip().isdigit() else None
