"""A plan that changes more of the card than the board's flasher can is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import check_reach, planned
from fsjoule.runs.request import choose

KERNELS = ("6.1", "6.12")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The virtual board's file with a card that stays in the board."""
    file = tmp_path / "env.yaml"
    text = (project_dir() / "env" / "virtual.yaml").read_text()
    file.write_text(text.replace("      SdMuxFlasher:\n        write_timeout: 300\n", "      KeptCard: {}\n"))
    return file


def _plan(
    file: Path,
    *,
    kernels: str = "6.1",
    filesystems: str = "ext4,btrfs",
    provision: str | None = None,
    recipe: str = "imx6ul",
) -> None:
    choice = choose(
        BenchOptions(
            suite="quick",
            fs=filesystems,
            kernel=kernels,
            repeat=1,
            provision=provision,
            results=Path("results"),
            seed=1,
        )
    )
    planned(choice, replace(read_environment(file).profile, recipe=recipe), choice.kernels)


def test_a_card_that_stays_has_one_kernel_and_one_root_and_any_filesystem_on_scratch(kept: Path) -> None:
    _plan(kept)
    with pytest.raises(ConfigError, match=r"2 kernels \(6.1, 6.12\), but the flasher of virtual changes only"):
        _plan(kept, kernels="6.1,6.12")
    with pytest.raises(ConfigError, match=r"2 root filesystems \(ext4, btrfs\)|2 root filesystems \(btrfs, ext4\)"):
        _plan(kept, provision="root")


def test_a_flasher_of_the_whole_card_has_no_limit() -> None:
    profile = read_environment(project_dir() / "env" / "virtual.yaml").profile
    check_reach(profile, KERNELS, ("ext4", "btrfs"))


def test_kernels_in_place_leave_the_root_as_it_is(kept: Path) -> None:
    kept.write_text(kept.read_text().replace("KeptCard", "InPlaceFlasher"))
    _plan(kept, kernels="6.1,6.12")
    _plan(kept, filesystems="ext4", provision="root")
    with pytest.raises(
        ConfigError, match=r"root filesystem btrfs, but the flasher of virtual changes only the kernel: the"
    ) as raised:
        _plan(kept, filesystems="btrfs", provision="root")
    assert "card.second_root" in str(raised.value.hint)


def test_in_place_with_a_second_root_partition_any_root_can_be_brought(kept: Path, tmp_path: Path) -> None:
    kept.write_text(kept.read_text().replace("KeptCard", "InPlaceFlasher"))
    recipe = tmp_path / "two-roots.toml"
    recipe.write_text('base = "imx6ul"\n[card]\nsize_mib = 2048\nsecond_root = true\n')
    _plan(kept, kernels="6.1,6.12", provision="root", recipe=str(recipe))
