from __future__ import annotations

import pytest

from fsjoule.errors import ConfigError
from fsjoule.kernels.modules import closure, module_name, parse_index

INDEX = parse_index(
    dep="""\
kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko:
kernel/lib/crc16.ko:
kernel/fs/btrfs/btrfs.ko.xz: kernel/lib/raid6/raid6_pq.ko.xz kernel/crypto/xor.ko.xz kernel/lib/libcrc32c.ko.xz
kernel/lib/raid6/raid6_pq.ko.xz:
kernel/crypto/xor.ko.xz:
kernel/lib/libcrc32c.ko.xz:
kernel/crypto/crc32c_generic.ko.xz:
arch/arm/crypto/crc32-arm-ce.ko.xz:
kernel/mmc/host/sdhci-esdhc-imx.ko.zst: kernel/mmc/host/sdhci-pltfm.ko.zst kernel/mmc/host/sdhci.ko.zst
kernel/mmc/host/sdhci-pltfm.ko.zst: kernel/mmc/host/sdhci.ko.zst
kernel/mmc/host/sdhci.ko.zst:
""",
    softdep="""\
# Soft dependencies extracted from modules themselves.
softdep ext4 pre: crc32c
softdep libcrc32c pre: crc32c
softdep btrfs pre: crc32c pre: blake2b-256
""",
    alias="""\
# Aliases extracted from modules themselves.
alias crc32c crc32c_generic
alias crypto-crc32c crc32c_generic
alias crc32c crc32_arm_ce
alias fs-ext[234] ext4
""",
    builtin="kernel/drivers/mmc/core/mmc_block.ko\nkernel/crypto/sha256_generic.ko\n",
)


@pytest.mark.parametrize(
    "path", ["a/b/mmc-block.ko", "mmc-block.ko.xz", "x/mmc_block.ko.zst", "mmc_block.ko.gz", "mmc-block"]
)
def test_names_are_spelt_with_underscores_and_without_suffix(path: str) -> None:
    assert module_name(path) == "mmc_block"


def test_each_module_comes_after_what_it_needs() -> None:
    order = closure(["ext4"], INDEX)
    assert set(order) == {"ext4", "jbd2", "crc16", "crc32c_generic", "crc32_arm_ce"}
    assert order[-1] == "ext4"


def test_dependencies_of_dependencies_are_found_and_none_comes_twice() -> None:
    order = closure(["sdhci-esdhc-imx", "btrfs", "ext4"], INDEX)
    assert len(order) == len(set(order))
    assert order.index("sdhci") < order.index("sdhci_pltfm") < order.index("sdhci_esdhc_imx")
    assert order.index("crc32c_generic") < order.index("libcrc32c") < order.index("btrfs")


def test_what_is_built_in_needs_no_loading() -> None:
    assert closure(["mmc_block"], INDEX) == ()


def test_an_alias_stands_for_its_modules() -> None:
    assert INDEX.resolve("fs-ext4") == ("ext4",)
    assert INDEX.resolve("crc32c") == ("crc32c_generic", "crc32_arm_ce")
    assert INDEX.resolve("blake2b-256") == ()


def test_a_module_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="no module 'zfs'"):
        closure(["ext4", "zfs"], INDEX)
