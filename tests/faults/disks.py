"""Disks that are full or cannot be written, and image caches that are damaged."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from faults.scene import Bench, Scene
from faults.watch import await_condition
from fsjoule import images
from fsjoule.host.cache.stages import images_cache, recorded
from fsjoule.host.paths import cache_dir

_RESULTS_MIB: Final = 16
_MIB: Final = 1 << 20
_BLOCK: Final = 4096
# To copy a cache takes half a minute beside other labs.
_LIMIT_S: Final = 300.0
# Less than any measurement's files, so that the next one does not fit.
_ROOM_BYTES: Final = 4096
_CARD: Final = "card.img"
# What a campaign's benches boot.
_KERNEL_AND_ROOT: Final = ("6.1", "ext4")

Damage = Callable[[Path, random.Random], str]


def _mount(scene: Scene, at: Path, mib: int) -> None:
    at.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "fsjoule-faults", str(at))
    scene.closing.callback(_run, "umount", "--lazy", str(at))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=_LIMIT_S)


# ----------------------------------------------------------------------------------------------------------- results


def own_disk_for_results(scene: Scene) -> str:
    """The results are on a small disk, on which there is room yet."""
    _mount(scene, scene.results, _RESULTS_MIB)
    return ""


def fill_results(scene: Scene, _bench: Bench) -> str:
    """Somebody else fills the disk, but for a few bytes; later makes room again."""
    ballast = scene.results / "ballast"
    left = scene.rng.randrange(0, _ROOM_BYTES)
    with ballast.open("wb") as file:
        written = _fill(file.fileno())
        os.ftruncate(file.fileno(), max(0, written - left) // _BLOCK * _BLOCK)
    scene.mending.callback(ballast.unlink)
    return f"the results' disk was filled with {written / _MIB:.1f} MiB"


def _fill(descriptor: int) -> int:
    written = 0
    block = bytes(_BLOCK)
    try:
        while True:
            written += os.write(descriptor, block)
    except OSError:
        return written


def results_read_only(scene: Scene, bench: Bench) -> str:
    """The disk of the results turns read-only, as one does after an error."""

    def remounted() -> bool:
        return not subprocess.run(
            ["mount", "-o", "remount,ro", scene.results], capture_output=True, check=False
        ).returncode

    await_condition(bench, remounted, "the results' disk was read-only")
    scene.mending.callback(_run, "mount", "-o", "remount,rw", str(scene.results))
    return "the results' disk turned read-only"


# ------------------------------------------------------------------------------------------------------------- cache


def _copied_cache(scene: Scene) -> Path:
    """A cache of the scene's own, with all that its benches need. Returns the folder of their card.

    What begins with a dot is being built by somebody else, and comes and goes.
    """
    scene.cache = scene.folder / "cache"
    with recorded() as used:
        entry = images.build_card(*_KERNEL_AND_ROOT).path.parent
        images.emulator(_KERNEL_AND_ROOT[0])
    # What other recipes and kernels need is several GiB, and stays until somebody cleans the cache.
    wanted = [f"{each.parent.name}/{each.name}" for each in used if each.is_relative_to(images_cache())]
    wanted += [f"partition/{entry.name.rpartition('-')[0]}-*", "steady/*"]
    chosen = [*(f"--include=/{each}" for each in wanted), "--exclude=/*/*"]
    scene.cache.mkdir(exist_ok=True)
    for name in ("images", "meter", "probe"):
        filters = ["--exclude=.*", *(chosen if name == "images" else [])]
        _run("rsync", "-a", "--sparse", *filters, f"{cache_dir() / name}/", f"{scene.cache / name}/")
    return scene.cache / "images" / "card" / entry.name


def damaged_cache(damage: Damage) -> Callable[[Scene], str]:
    """A cache whose card was damaged after it was built: by a crash, or by a disk that fails."""
    return lambda scene: damage(_copied_cache(scene), scene.rng)


def card_missing(card: Path, _rng: random.Random) -> str:
    (card / _CARD).unlink()
    return f"{_CARD} removed"


def card_truncated(card: Path, rng: random.Random) -> str:
    size = rng.randrange((card / _CARD).stat().st_size)
    os.truncate(card / _CARD, size)
    return f"{_CARD} truncated to {size} bytes"


def card_flipped(card: Path, rng: random.Random) -> str:
    """One bit, somewhere where the image has content."""
    with (card / _CARD).open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        while True:
            block = rng.randrange(size // _BLOCK) * _BLOCK
            content = os.pread(file.fileno(), _BLOCK, block)
            if any(content):
                break
        at = rng.randrange(_BLOCK)
        os.pwrite(file.fileno(), bytes([content[at] ^ 1 << rng.randrange(8)]), block + at)
    return f"{_CARD} has one bit flipped in byte {block + at}"


def facts_garbled(card: Path, rng: random.Random) -> str:
    return _garble(next(card.glob("facts*.json")), rng)


def entry_garbled(card: Path, rng: random.Random) -> str:
    return _garble(card / "entry.json", rng)


def _garble(file: Path, rng: random.Random) -> str:
    """Zeros, as after a crash of a filesystem; nothing; half of it; or no JSON."""
    whole = file.read_bytes()
    how, content = rng.choice(
        [
            ("zeros", bytes(len(whole))),
            ("empty", b""),
            ("cut", whole[: len(whole) // 2]),
            ("no JSON", b"\xff\xfe" + whole),
            ("another document", b"[]"),
        ]
    )
    file.write_bytes(content)
    return f"{file.name}: {how}"


def cache_full(scene: Scene) -> str:
    """The card must be built, on a disk that has no room for it. Later the disk has."""
    _mount(scene, scene.folder / "cache", 4096)
    card = _copied_cache(scene)
    shutil.rmtree(card)
    used = shutil.disk_usage(scene.cache).used
    _run("mount", "-o", f"remount,size={used + scene.rng.randrange(1, 64) * _MIB}", str(scene.cache))
    scene.mending.callback(_run, "mount", "-o", "remount,size=4096m", str(scene.cache))
    return "no card in the cache, and no room for one"


def cache_read_only(*, with_card: bool) -> Callable[[Scene], str]:
    """All that is needed is in a cache that cannot be written; or all but the card."""

    def prepare(scene: Scene) -> str:
        _mount(scene, scene.folder / "cache", 4096)
        card = _copied_cache(scene)
        if not with_card:
            shutil.rmtree(card)
        _run("mount", "-o", "remount,ro", str(scene.cache))
        scene.mending.callback(_run, "mount", "-o", "remount,rw", str(scene.cache))
        return f"the cache is read-only, {'with' if with_card else 'without'} a card"

    return prepare
