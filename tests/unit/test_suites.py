from __future__ import annotations

import pytest

from fsjoule.errors import ConfigError
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Provision, TimedKind
from fsjoule.suites import SUITES, plan_entries, scaled, suite


def entries(seed: int, provision: Provision = Provision.SCRATCH, name: str = "quick"):  # noqa: ANN201
    return plan_entries(suite(name), ("ext4", "btrfs"), provision=provision, repeat=3, seed=seed, size_factor=0.1)


def test_the_seed_gives_the_order() -> None:
    assert entries(1) == entries(1)
    assert entries(1) != entries(2)


@pytest.mark.parametrize("provision", list(Provision))
def test_every_workload_is_measured_in_every_repetition(provision: Provision) -> None:
    plan = entries(5, provision)
    assert [e.number for e in plan] == list(range(1, len(plan) + 1))
    others = [e for e in plan if e.workload.slug != "boot"]
    assert len({(e.repetition, e.slug) for e in others}) == len(others) == 3 * 2 * 7


def test_each_repetition_starts_with_its_boot() -> None:
    for provision, boots in ((Provision.SCRATCH, 3), (Provision.ROOT, 6)):
        plan = entries(5, provision)
        assert len([e for e in plan if e.workload.operation is TimedKind.BOOT]) == boots
        assert plan[0].workload.operation is TimedKind.BOOT


def test_a_boot_from_a_root_filesystem_holds_that_one_only() -> None:
    current = ""
    for entry in entries(5, Provision.ROOT):
        if entry.workload.operation is TimedKind.BOOT:
            current = entry.filesystem
        assert entry.filesystem == current


def test_only_published_sizes_are_scaled() -> None:
    quick = {e.workload.size_bytes for e in entries(1) if isinstance(e.workload, FioWorkload)}
    published = {e.workload.size_bytes for e in entries(1, name="energy-emmc-2025")}
    assert quick == {w.size_bytes for w in SUITES["quick"].workloads if isinstance(w, FioWorkload)}
    assert published == {50 * MIB}


def test_scaling_keeps_whole_blocks() -> None:
    small = scaled(FioWorkload(IoPattern.READ, 16 * KIB, 10 * MIB), 0.00001)
    assert small.size_bytes == 16 * 16 * KIB


def test_a_filesystem_without_what_the_suite_needs_is_refused() -> None:
    with pytest.raises(ConfigError, match="nilfs2 has no fsck"):
        plan_entries(suite("operations"), ("nilfs2",), provision=Provision.SCRATCH, repeat=1, seed=1, size_factor=1.0)


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown suite 'slow'\n.*energy-emmc-2025.*quick"):
        suite("slow")
