"""A kernel that lacks what a suite needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from results_factory import KERNEL

from fsjoule.errors import ConfigError
from fsjoule.suites import check_modules, suite


@pytest.mark.parametrize(
    ("part", "lacks", "complaint"),
    [
        ("elc2015/dm-flakey", ("dm-flakey",), "elc2015/dm-flakey needs modules that the kernel .* lacks: dm-flakey"),
        ("elc2015", ("dm-flakey",), "elc2015/dm-flakey needs"),
        ("elc2015/power-loss", ("f2fs",), "has no f2fs"),
        ("elc2015/power-loss", ("dm-flakey",), ""),
        ("elc2015/dm-flakey", (), ""),
    ],
)
def test_a_kernel_without_what_is_measured_is_refused_at_once(
    part: str, lacks: tuple[str, ...], complaint: str
) -> None:
    kernel = replace(KERNEL, lacks=lacks)
    if complaint:
        with pytest.raises(ConfigError, match=complaint):
            check_modules(suite(part), ("ext4", "f2fs"), kernel)
    else:
        check_modules(suite(part), ("ext4", "f2fs"), kernel)
