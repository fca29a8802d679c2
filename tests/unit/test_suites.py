from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from results_factory import make_run

from fsjoule.errors import ConfigError
from fsjoule.model import (
    CARD,
    KIB,
    MIB,
    PURE_PATTERNS,
    FioWorkload,
    IoPattern,
    Planned,
    Provision,
    Storage,
    TimedKind,
)
from fsjoule.suites import (
    SUITES,
    BoardRates,
    Planning,
    StorageSpace,
    check_fits,
    estimate,
    learned,
    plan_entries,
    suite,
)


def entries(
    seed: int,
    provision: Provision = Provision.SCRATCH,
    name: str = "quick",
    *,
    kernels: tuple[str, ...] = ("6.1",),
    repeat: int = 3,
) -> tuple[Planned, ...]:
    filesystems = ("ext4", "btrfs")
    wanted = Planning(
        filesystems, kernels, repeat, seed, provision, factor_for=lambda _: 0.1, root_filesystems=filesystems
    )
    return plan_entries(suite(name), wanted).entries


def boots(plan: tuple[Planned, ...]) -> list[tuple[int, str, str]]:
    """Repetition, kernel and filesystem of each boot, in order."""
    found = [e for e in plan if e.workload.operation is TimedKind.BOOT]
    return [(e.repetition, e.kernel, e.filesystem) for e in found]


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


KERNELS = ("5.10", "6.1", "6.12", "sid")


def test_with_several_kernels_a_repetition_is_a_block_of_one_boot_each() -> None:
    plan = boots(entries(5, kernels=KERNELS))
    blocks = [plan[:4], plan[4:8], plan[8:]]
    for repetition, block in enumerate(blocks, start=1):
        assert {r for r, _, _ in block} == {repetition}
        assert sorted(kernel for _, kernel, _ in block) == sorted(KERNELS)


def test_a_block_from_root_filesystems_has_every_kernel_with_every_filesystem() -> None:
    plan = boots(entries(5, Provision.ROOT, kernels=("6.1", "6.12")))
    assert len(plan) == 12
    for first in (0, 4, 8):
        pairs = [(kernel, filesystem) for _, kernel, filesystem in plan[first : first + 4]]
        assert sorted(pairs) == [("6.1", "btrfs"), ("6.1", "ext4"), ("6.12", "btrfs"), ("6.12", "ext4")]


def test_nothing_is_measured_between_the_boots_of_another_kernel() -> None:
    current = ""
    for entry in entries(5, kernels=KERNELS):
        if entry.workload.operation is TimedKind.BOOT:
            current = entry.kernel
        assert entry.kernel == current


def test_the_order_of_kernels_in_a_block_is_random() -> None:
    """Of two kernels each comes first in about half of the blocks, whatever came first in the block before."""
    firsts = [kernel for r, kernel, _ in boots(entries(3, kernels=("a", "b"), repeat=400))[::2] if r]
    repeated = sum(first == then for first, then in pairwise(firsts))
    # Five standard deviations of 400 fair coins: 50.
    assert 150 < firsts.count("a") < 250
    assert 150 < repeated < 250


def test_only_published_sizes_are_scaled() -> None:
    quick = {e.workload.size_bytes for e in entries(1) if isinstance(e.workload, FioWorkload)}
    published = {e.workload.size_bytes for e in entries(1, name="energy-emmc-2025")}
    assert quick == {w.size_bytes for w in SUITES["quick"].workloads if isinstance(w, FioWorkload)}
    assert published == {50 * MIB}


def test_scaling_keeps_whole_blocks() -> None:
    small = FioWorkload(IoPattern.READ, 16 * KIB, 10 * MIB).scaled(0.00001)
    assert small.size_bytes == 16 * 16 * KIB


def test_time_is_scaled_to_three_seconds_at_least() -> None:
    minutes = FioWorkload(IoPattern.RANDRW, 100 * KIB, 1024 * MIB, runtime_s=1200.0)
    assert minutes.scaled(0.02).slug == "randrw-100k-24s"
    assert minutes.scaled(0.0001).slug == "randrw-100k-3s"


def test_fewer_than_16_blocks_are_scaled_to_one() -> None:
    large = FioWorkload(IoPattern.READ, 100 * MIB, 1000 * MIB).scaled(0.02)
    assert large.size_bytes == 100 * MIB


def disks(*names: str) -> dict[str, Storage]:
    return {name: Storage(f"sd{letter}", 1024 * MIB) for name, letter in zip(names, "ab", strict=False)}


def on_storages(name: str, storages: tuple[str, ...] | None = None, **more: Any) -> tuple[Planned, ...]:
    wanted = Planning(("ext4",), ("6.1",), 1, 1, storages=storages, **more)
    return plan_entries(suite(name), wanted).entries


def test_a_suite_says_on_which_storage_devices_it_measures() -> None:
    board: dict[str, Any] = {"further": disks("nvme", "sata")}
    assert {e.storage for e in on_storages("elc2015/supports", **board)} == {CARD, "nvme", "sata"}
    assert {e.storage for e in on_storages("elc2015/mkfs", **board)} == {CARD}
    assert {e.storage for e in on_storages("ext4-zfs-2023/test2", **board)} == {"nvme", "sata"}
    assert {e.storage for e in on_storages("ext4-zfs-2023/test2")} == {CARD}


def test_the_user_says_on_which_storage_devices_it_measures() -> None:
    assert {e.storage for e in on_storages("elc2015/mkfs", ("sata",), further=disks("nvme", "sata"))} == {"sata"}
    with pytest.raises(ConfigError, match=r"unknown storage device of this board 'stick'\n.*card, nvme"):
        on_storages("quick", ("stick",), further=disks("nvme"))
    with pytest.raises(ConfigError, match="elc2015/boot is measured on the root filesystem"):
        on_storages("elc2015/boot", ("nvme",), further=disks("nvme"))


def test_the_raw_device_is_measured_once_whatever_filesystems_are() -> None:
    wanted = Planning(("ext4", "btrfs"), ("6.1",), 1, 1)
    plan = plan_entries(suite("ext4-zfs-2023/test3"), wanted).entries
    assert {e.filesystem for e in plan} == {"raw"}
    assert len(plan) == 12
    with pytest.raises(ConfigError, match="raw has no mkfs"):
        plan_entries(suite("quick"), Planning(("raw",), ("6.1",), 1, 1))


def test_a_queue_depth_is_the_storage_devices() -> None:
    plan = on_storages("ext4-zfs-2023/test1", further=disks("nvme", "sata"))
    assert {(e.storage, e.workload.depth) for e in plan if isinstance(e.workload, FioWorkload)} == {
        ("nvme", 128),
        ("sata", 16),
    }


def test_buffers_take_no_more_than_a_quarter_of_the_memory() -> None:
    wanted = Planning(("ext4",), ("6.1",), 1, 1, memory_bytes=2048 * MIB)
    arranged = plan_entries(suite("ext4-zfs-2023/test1"), wanted)
    deepest = {
        e.workload.block_size_bytes // KIB: e.workload.depth
        for e in arranged.entries
        if isinstance(e.workload, FioWorkload)
    }
    assert deepest == {1: 128, 10: 128, 100: 128, 1000: 128, 10_000: 52, 100_000: 5}
    assert (
        "ext4-zfs-2023/test1, randread-10000k-direct-qd128-60s: queue depth 52 instead of 128: "
        "its buffers would take 1,250 MiB, the board has 2,048 MiB"
    ) in arranged.adjusted
    assert arranged.left_out == ()
    with pytest.raises(ConfigError, match="randread-100000k-direct-qd128-60s does not fit the board's memory"):
        plan_entries(suite("ext4-zfs-2023/test1"), Planning(("ext4",), ("6.1",), 1, 1, memory_bytes=300 * MIB))


def test_what_does_not_fit_a_further_storage_device_is_refused() -> None:
    plan = on_storages("ext4-zfs-2023/test2", further=disks("nvme"))
    space = StorageSpace(540 * MIB, 208 * MIB, {"nvme": 1024 * MIB})
    with pytest.raises(ConfigError, match="puts 10240 MiB onto a filesystem, and nvme has room for 819 MiB of files"):
        check_fits(
            suite("ext4-zfs-2023/test2"),
            [e for e in plan if e.workload.size_bytes == 10240 * MIB],
            space,
            lambda _: 1.0,
        )


def test_few_files_are_gone_through_until_enough_has_been_moved() -> None:
    def moved(block: int, factor: float) -> tuple[int, int, int]:
        small = FioWorkload(IoPattern.READ, block, 500 * MIB, files=50).scaled(factor)
        return small.files, small.size_bytes, small.io_bytes

    assert moved(4 * MIB, 1.0) == (50, 500 * MIB, 0)
    assert moved(4 * MIB, 0.2) == (10, 100 * MIB, 0)
    assert moved(4 * MIB, 0.0625) == (3, 30 * MIB, 16 * 4 * MIB)
    assert moved(4 * KIB, 0.0625) == (3, 30 * MIB, 0)


def test_a_filesystem_without_what_the_suite_needs_is_refused() -> None:
    with pytest.raises(ConfigError, match="nilfs2 has no fsck"):
        plan_entries(suite("operations"), Planning(("nilfs2",), ("6.1",), repeat=1, seed=1))


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown suite 'slow'\n.*energy-emmc-2025.*quick"):
        suite("slow")


def test_parts_are_suites_of_their_own() -> None:
    whole = suite("elc2015")
    assert [part.name for part in whole.leaves] == [part.name for part in whole.parts]
    assert suite("elc2015/boot") is next(part for part in whole.parts if part.name == "elc2015/boot")
    with pytest.raises(ConfigError, match=r"unknown part of elc2015 'elc2015/boat'\n.*elc2015/boot"):
        suite("elc2015/boat")


def test_a_published_suite_leaves_out_what_a_filesystem_lacks() -> None:
    wanted = Planning(("ext4", "nilfs2"), ("6.1",), 1, 1, root_filesystems=("ext4",))
    arranged = plan_entries(suite("elc2015"), wanted)
    plan = arranged.entries
    assert arranged.left_out == (
        "elc2015/boot, boot: no card image can have nilfs2 as its root",
        "elc2015/fsck, fsck: nilfs2 has no fsck",
    )
    assert {e.filesystem for e in plan if e.suite == "elc2015/fsck"} == {"ext4"}
    assert {e.provision for e in plan if e.suite == "elc2015/boot"} == {Provision.ROOT}
    assert {e.provision for e in plan if e.suite != "elc2015/boot"} == {Provision.SCRATCH}


def test_a_part_that_nothing_can_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nothing is left of elc2015/fsck: .*nilfs2 has no fsck"):
        plan_entries(suite("elc2015/fsck"), Planning(("nilfs2",), ("6.1",), 1, 1))


def test_what_measures_the_root_filesystem_is_not_provisioned_on_scratch() -> None:
    with pytest.raises(ConfigError, match="elc2015/boot does not measure filesystems provisioned as scratch"):
        plan_entries(suite("elc2015/boot"), Planning(("ext4",), ("6.1",), 1, 1, Provision.SCRATCH))


def test_of_several_files_there_are_fewer_of_the_same_size() -> None:
    workload = suite("elc2015/bandwidth").workloads[0]
    small = workload.scaled(0.1)
    assert isinstance(small, FioWorkload)
    assert (small.files, small.size_bytes) == (5, 50 * MIB)


def test_what_does_not_fit_is_refused_with_a_factor_that_does() -> None:
    space = StorageSpace(scratch_bytes=540 * MIB, root_free_bytes=208 * MIB)

    def planned(factor: float) -> tuple[Planned, ...]:
        wanted = Planning(("ext4",), ("6.1",), 1, 1, factor_for=lambda _: factor)
        return plan_entries(suite("copy-2015"), wanted).entries

    words = r"copy-24576m puts 24576 MiB .* the root partition of the card has room for 166 MiB"
    with pytest.raises(ConfigError, match=words) as caught:
        check_fits(suite("copy-2015"), planned(1.0), space, lambda _: 1.0)
    assert caught.value.hint is not None
    fitting = float(caught.value.hint.split()[1])
    assert 0.006 < fitting < 0.007
    check_fits(suite("copy-2015"), planned(fitting), space, lambda _: fitting)
    with pytest.raises(ConfigError, match=r"puts 983 MiB .* the scratch partition of the card has room for 432 MiB"):
        check_fits(suite("copy-2015"), planned(0.04), StorageSpace(540 * MIB, 1000 * MIB), lambda _: 0.04)


@pytest.mark.parametrize("name", ["quick", "operations"])
def test_a_suite_of_fixed_sizes_gets_no_factor_that_would_not_help(name: str) -> None:
    plan = entries(1, name=name)
    with pytest.raises(ConfigError, match=rf"{name} does not fit: .* has room for 6 MiB of files") as caught:
        check_fits(suite(name), plan, StorageSpace(8 * MIB, 1000 * MIB), lambda _: 0.1)
    assert "its sizes are fixed, whatever --size-factor says" in (caught.value.hint or "")
    assert "would fit" not in (caught.value.hint or "")
    check_fits(suite(name), plan, StorageSpace(100 * MIB, 1000 * MIB), lambda _: 0.1)


def test_an_estimate_learns_from_what_was_measured() -> None:
    plan = entries(1, repeat=2)
    guess = estimate(plan, BoardRates())
    assert guess.boots == 2
    assert guess.measurements == len(plan)
    # Every job of quick lays its file out or writes it: two filesystems, four patterns, two boots, 32 MiB.
    assert guess.written_bytes == 2 * 4 * 2 * 32 * MIB
    made = make_run(repeat=2)
    rates = learned([(made.run, made.measurements)])
    assert rates.runs == 1
    assert estimate(plan, rates).seconds != guess.seconds
    assert rates.mib_per_s.keys() == {(CARD, pattern.value) for pattern in PURE_PATTERNS}
    assert learned([]) == BoardRates()


def test_an_estimate_learns_each_storage_device_for_itself() -> None:
    made = make_run(repeat=1)
    fast = [
        replace(m, throughput_mib_per_s=m.throughput_mib_per_s and 100 * m.throughput_mib_per_s)
        for m in made.measurements
    ]
    on_nvme = tuple(replace(entry, storage="nvme") for entry in made.run.plan.entries)
    fast_run = replace(made.run, plan=replace(made.run.plan, entries=on_nvme))
    card = learned([(made.run, made.measurements)])
    both = learned([(made.run, made.measurements), (fast_run, fast)])
    for pattern in PURE_PATTERNS:
        assert both.mib_per_s[CARD, pattern.value] == card.mib_per_s[CARD, pattern.value]
        assert both.mib_per_s["nvme", pattern.value] == pytest.approx(100 * both.mib_per_s[CARD, pattern.value])
    assert {storage for storage, _ in both.timed_s} == {CARD, "nvme"}
    assert both.runs == 2
    # A device that nothing is known of stays a guess, whatever the card does.
    plan = [e for e in entries(1, repeat=1) if isinstance(e.workload, FioWorkload)]
    elsewhere = [replace(e, storage="sata") for e in plan]
    guessed = replace(both, mib_per_s={}, timed_s={})
    assert estimate(elsewhere, both).seconds == estimate(elsewhere, guessed).seconds
    assert estimate(plan, both).seconds != estimate(plan, guessed).seconds
