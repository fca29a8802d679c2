"""An emulated board with a card that was written by hand, on which kernels are tried in place."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lab_board import lab_board

from fsjoule import images
from fsjoule.host import process
from fsjoule.kernels.recipe import recipes_folder
from fsjoule.lab import BoardStrategy
from fsjoule.lab.flashers import NamedCard, boot_partition, partitions
from fsjoule.lab.shell import LabgridShell
from fsjoule.model import MIB, ImageFacts
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

_ENVIRONMENTS: Final = Path(__file__).parents[2] / "env"
ORANGEPI: Final = "orangepi-network"
RPI3: Final = "rpi3"
RECIPE: Final = "orangepi-qemu"
# A card with a second root partition. The recipe keeps its name, so that all but root and card is in the cache already.
# xfs takes no smaller root; of it and of f2fs the block map has all.
_TWO_ROOTS: Final = "\n[card]\nsize_mib = 2048\nroot_mib = 304\nsecond_root = true\n"
_BOOT_TIMEOUT_S: Final = 600  # on a busy machine
# What the environment file of a virtual board has to write its card, and what it gets instead.
_U_BOOT: Final = """\
      UBootDriver:
        prompt: '\\n=> '
        login_timeout: 60
"""
_TFTP: Final = """\
      TftpFlasher:
        device: mmc 0
"""
_MUX: Final = """\
      USBSDMuxDriver: {}
      USBStorageDriver: {}
      SdMuxFlasher:
        write_timeout: 300
"""
_INSTEAD: Final = {
    ORANGEPI: {_U_BOOT: "", _TFTP: "      InPlaceFlasher:\n        driver: dwmac-sun8i\n"},
    RPI3: {_MUX: "      InPlaceFlasher: {}\n"},
}


class InPlaceBoard:
    """A board with its strategy; `boot` raises what the strategy raises."""

    def __init__(self, strategy: BoardStrategy, name: str) -> None:
        self.strategy = strategy
        self._name = name
        strategy.boot_timeout = _BOOT_TIMEOUT_S

    def boot(self, image: Path) -> str:
        """Have an image's kernel tried. Returns the release that runs."""
        self._choose(image)
        self.strategy.transition("booted")
        return self.run("uname -r")

    def flash(self, image: Path) -> None:
        """Have the kept kernel bring an image's kernel onto the card, whatever is there; the board is off then."""
        self._choose(image)
        self.strategy.forget_card()
        self.strategy.transition("flashed")

    def _choose(self, image: Path) -> None:
        self.strategy.card = NamedCard(image, ImageFacts("", image.name, "", str(image), {}, {}))

    def run(self, command: str) -> str:
        strategy: Any = self.strategy
        shell = LabgridShell(strategy.shell, strategy.recorder, strategy.lose, strategy.look)
        return shell.run(["sh", "-c", command], timeout_s=120).stdout.strip()

    def fill_second_root(self, image: Path, lacking_mib: int) -> None:
        """As if a flash of this image had been cut off: its root is there, without the first MiB. The board is off."""
        root, second = partitions(image)[1], partitions(image)[3]
        with image.open("rb") as source, LabPaths.of(self._name).card.open("r+b") as target:
            target.seek(second.start * second.sector_bytes)
            target.write(bytes(lacking_mib * MIB))
            source.seek(root.start * root.sector_bytes + lacking_mib * MIB)
            for _ in range(root.size * root.sector_bytes // MIB - lacking_mib):
                target.write(source.read(MIB))

    def off(self) -> None:
        self.strategy.transition("off")

    @property
    def power(self) -> str:
        status = lab.status(self._name).board
        assert status is not None
        return status["power"]


def card(kernel: str, root: str = "ext4", recipe: str = RECIPE) -> Path:
    return images.build_card(kernel, root, recipe=recipe).path


def card_with_two_roots(folder: Path, kernel: str, root: str) -> Path:
    """A card image with a second root partition. `folder` takes its recipe."""
    recipe = folder / f"{RECIPE}.toml"
    recipe.write_text((recipes_folder() / recipe.name).read_text() + _TWO_ROOTS)
    return card(kernel, root, str(recipe))


@contextmanager
def in_place_board(kept: Path, folder: Path, name: str = ORANGEPI) -> Generator[InPlaceBoard]:
    """A lab whose board has the card `kept`, its place acquired, and its board."""
    paths = LabPaths.of(name)
    paths.root.mkdir(parents=True, exist_ok=True)
    process.run(["cp", "--sparse=always", kept, paths.card], timeout_s=120)
    text = (_ENVIRONMENTS / f"virtual-{name}.yaml").read_text()
    for lines, instead in _INSTEAD[name].items():
        assert text.count(lines) == 1
        text = text.replace(lines, instead)
    file = folder / "env.yaml"
    file.write_text(text)
    with lab_board(name, file, name) as strategy:
        yield InPlaceBoard(strategy, name)


def changed(image: Path, copy: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """A copy of a card image with another content of one file of its boot partition."""
    process.run(["cp", "--sparse=always", image, copy], timeout_s=120)
    boot = boot_partition(image)
    partition, file = f"{copy}@@{boot.start * boot.sector_bytes}", copy.with_suffix(".file")
    process.run(["mcopy", "-n", "-i", partition, f"::{name}", file], timeout_s=60)
    file.write_bytes(change(file.read_bytes()))
    process.run(["mcopy", "-o", "-i", partition, file, f"::{name}"], timeout_s=60)
    return copy


def with_damaged_root(image: Path, copy: Path) -> Path:
    """A copy of a card image whose root cannot be mounted: its first MiB is empty."""
    process.run(["cp", "--sparse=always", image, copy], timeout_s=120)
    copy.with_name(f"{copy.name}.bmap").write_bytes(image.with_name(f"{image.name}.bmap").read_bytes())
    root = partitions(image)[1]
    with copy.open("r+b") as file:
        file.seek(root.start * root.sector_bytes)
        file.write(bytes(MIB))
    return copy


def with_initramfs(archive: bytes, change: Callable[[Path], None]) -> bytes:
    """An initramfs that was unpacked, changed and packed again."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        unpack = ["cpio", "--extract", "--quiet"]
        subprocess.run(unpack, input=archive, cwd=tree, check=True, timeout=60)
        change(tree)
        names = "\n".join(sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*"))).encode()
        pack = ["cpio", "--create", "--quiet", "--format=newc"]
        return subprocess.run(pack, input=names, cwd=tree, check=True, timeout=60, capture_output=True).stdout
