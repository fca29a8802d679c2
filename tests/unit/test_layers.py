"""Layers between filesystem and storage: their names, where they can be, what a board does for them, what they cost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_bench import PROFILE, answer, bench_of, entry
from results_factory import KERNEL, make_run
from rivals import rivals

from fsjoule.bench.scratch import SCRATCH_DIRECTORY, name_of
from fsjoule.errors import BoardError, ConfigError
from fsjoule.filesystems import filesystem
from fsjoule.layers import LAYERS, drivers, named_stacks, stack
from fsjoule.model import MIB, Measurement, Provision, Storage
from fsjoule.model.metrics import Metric
from fsjoule.ports import CommandResult
from fsjoule.report.layers import layers_table
from fsjoule.report.numbers import signed
from fsjoule.report.summary import summarise
from fsjoule.statistics.outcome import Outcome
from fsjoule.suites import Planning, check_modules, plan_entries, suite
from fsjoule.testing import FakeMeter, FakeShell
from fsjoule.verdicts.filesystems import contests, layer_costs

CRYPTO = """\
name         : xts(aes)
driver       : xts(ecb(aes-generic))
priority     : 100
internal     : no

name         : xts(aes)
driver       : xts-aes-neonbs
priority     : 250
internal     : no

name         : xts(aes)
driver       : cryptd(__xts-aes-neonbs)
priority     : 300
internal     : yes
"""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("none", ""),
        ("dm-crypt", "dm-crypt"),
        ("dm-crypt:key=512", "dm-crypt"),
        ("dm-crypt:key=256:sector4k:inline", "dm-crypt:inline:sector4k:key=256"),
        ("dm-integrity+dm-crypt:adiantum", "dm-integrity+dm-crypt:adiantum"),
        ("dm-integrity+dm-integrity", "dm-integrity+dm-integrity"),
    ],
)
def test_equal_layers_make_equal_names(given: str, name: str) -> None:
    assert stack(given).name == name


@pytest.mark.parametrize(
    ("given", "complaint", "hint"),
    [
        ("dmcrypt", "unknown layer 'dmcrypt'", "choose from: dm-crypt"),
        ("dm-crypt:zstd", "unknown variant of dm-crypt 'zstd'", "adiantum"),
        ("dm-crypt:adiantum:key=512", "dm-crypt:adiantum takes no key of '512' bits", "choose from: 256$"),
        ("dm-integrity:nojournal:bitmap", "nojournal and bitmap exclude each other", "leave one out"),
        ("scheduler", "does not say which scheduler", "scheduler:bfq"),
        ("fscrypt+dm-crypt", "dm-crypt is a device below all directories", "name it first"),
        ("zram+zram:lz4", "zram is there twice", "leave one out"),
        ("dm-crypt+", "unknown layer ''", "choose from"),
        ("none+dm-crypt", "none is without layers", "leave none out"),
    ],
)
def test_what_is_no_stack_is_refused_with_the_choices(given: str, complaint: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as refused:
        named_stacks(f"none,{given}")
    assert re.search(hint, refused.value.hint or "")


def test_every_layer_and_variant_makes_whole_argument_lists() -> None:
    for row in LAYERS.values():
        for name in (*row.variants, ""):
            if not name and not all(row.values.values()):
                continue
            [layer] = stack(f"{row.name}:{name}".rstrip(":")).layers
            given = {"device": "/dev/x", "node": "n", "disk": "x", "directory": "/d"}
            for program in (row.prepare, row.up, row.down):
                assert not [word for word in layer.argv(program, **given) if re.search(r"\{[a-z]+\}", word)]


def planning(**changed: object) -> Planning:
    return replace(Planning(("ext4",), ("6.1",), repeat=1, seed=3, stacks=("", "dm-crypt")), **changed)  # type: ignore[arg-type]


def test_each_storage_device_is_measured_with_each_stack() -> None:
    further = {"stick": Storage("sda", 512 * MIB)}
    entries = plan_entries(suite("quick"), planning(further=further, storages=("card", "stick"))).entries
    assert {each.storage for each in entries} == {"card", "card+dm-crypt", "stick", "stick+dm-crypt"}
    assert {each.slug for each in entries if each.workload.slug == "write-16k"} == {
        *("ext4-write-16k", "ext4-write-16k-card+dm-crypt"),
        *("ext4-write-16k-stick", "ext4-write-16k-stick+dm-crypt"),
    }
    # A run that goes on has the layers in the names of its storage devices.
    storages = tuple(sorted({each.storage for each in entries if not each.workload.is_boot}))
    again = planning(further=further, storages=storages, stacks=())
    assert plan_entries(suite("quick"), again).entries == entries


@pytest.mark.parametrize(
    ("part", "changed", "complaint"),
    [
        ("quick", {"filesystems": ("xfs",), "stacks": ("fscrypt",)}, "fscrypt cannot be on xfs"),
        ("quick", {"filesystems": ("mine=xfs:noatime",), "stacks": ("fscrypt",)}, "fscrypt cannot be on xfs"),
        ("elc2015/dm-flakey", {}, "dm-flakey-.* is not measured with layers"),
        ("quick", {"provision": Provision.ROOT}, "no layer can be below the root: dm-crypt"),
        (
            "root-image",
            {"filesystems": ("erofs",), "root_filesystems": ("erofs",)},
            r"below the root(.|\n)*another suite",
        ),
        ("quick", {"storages": ("disk+dm-crypt",), "stacks": ()}, "unknown storage device"),
        ("quick", {"storages": ("card+dmcrypt",), "stacks": ()}, "unknown layer"),
    ],
)
def test_layers_that_cannot_be_there_are_refused(part: str, changed: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan_entries(suite(part), planning(**changed))


def test_a_kernel_without_a_layers_module_is_refused_with_its_symbols() -> None:
    kernel = replace(KERNEL, lacks=("adiantum",))
    check_modules(suite("quick"), ("ext4",), kernel, ["card", "card+dm-crypt"])
    with pytest.raises(ConfigError, match="has no dm-crypt:adiantum: it lacks adiantum") as refused:
        check_modules(suite("quick"), ("ext4",), kernel, ["card+dm-crypt:adiantum"])
    assert "CONFIG_DM_CRYPT" in (refused.value.hint or "")


def test_the_driver_is_the_one_that_the_kernel_takes() -> None:
    assert drivers(CRYPTO, ["xts(aes)", "crc32c"]) == {"xts(aes)": "xts-aes-neonbs"}


def measured(
    *storages: str, refused: str = "", purge: bool = False, name: str = "ext4"
) -> tuple[FakeShell, list[Measurement]]:
    """Write on these storage devices, one after the other; the shell that was asked, and the measurements."""

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if argv == ("cat", "/proc/crypto"):
            return CommandResult(argv, 0, CRYPTO)
        if refused and any(refused in word for word in argv):
            return CommandResult(argv, 1, "device-mapper: reload ioctl failed: No such file or directory")
        return answer(argv)

    shell = FakeShell(answered)
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    bench = replace(bench, profile=replace(PROFILE, purge=purge))
    written = replace(entry(bench, "write-16k"), filesystem=name)
    found = [bench.measure(replace(written, number=101 + i, storage=each)) for i, each in enumerate(storages)]
    return shell, found


def steps(shell: FakeShell) -> list[str]:
    """What was done with layers and devices, in words."""
    words = {"mkfs.ext4": "mkfs", "blkdiscard": "purge"}
    done: list[str] = []
    for argv in shell.asked:
        if argv[0] in words:
            done.append(f"{words[argv[0]]} {argv[-1]}")
        elif argv[:2] == ("sh", "-c") and "dmsetup" in argv[2]:
            what = "remove" if argv[2].startswith("!") else "prepare" if "blkdiscard" in argv[2] else "create"
            done.append(f"{what} {' on '.join(reversed(argv[4:6])) if what != 'remove' else argv[4]}")
    return done


PART, LOW, HIGH = "/dev/mmcblk1p3", "/dev/mapper/fsjoule-0", "/dev/mapper/fsjoule-1"


def test_a_filesystem_is_made_on_the_highest_layer_and_none_stays() -> None:
    shell, found = measured("card", "card+dm-integrity+dm-crypt", "card+dm-integrity+dm-crypt", "card")
    assert steps(shell) == [
        f"mkfs {PART}",
        *(f"prepare fsjoule-0 on {PART}", f"create fsjoule-0 on {PART}", f"create fsjoule-1 on {LOW}"),
        *(f"mkfs {HIGH}", f"mkfs {HIGH}"),
        *("remove fsjoule-1", "remove fsjoule-0", f"mkfs {PART}"),
    ]
    assert [each.series.storage for each in found][1:] == ["card + dm-integrity+dm-crypt"] * 2 + ["card"]
    assert "ciphers and checksums: xts(aes) by xts-aes-neonbs" in found[1].notes


def test_a_purge_goes_below_the_layers() -> None:
    shell, _ = measured("card+dm-crypt", purge=True)
    up, down = f"create fsjoule-0 on {PART}", "remove fsjoule-0"
    assert steps(shell) == [up, down, f"purge {PART}", up, f"mkfs {LOW}"]


def test_layers_that_were_half_set_up_are_taken_away_and_said() -> None:
    shell, found = measured("card+dm-integrity+dm-crypt", "card", refused=" crypt ")
    assert steps(shell)[-3:] == ["remove fsjoule-1", "remove fsjoule-0", f"mkfs {PART}"]
    [reason] = found[0].invalid_reasons[:1]
    assert reason.startswith("`layer dm-crypt` ended with exit code 1: device-mapper: reload ioctl failed")


def test_layers_are_set_up_anew_after_a_measurement_that_failed() -> None:
    shell, _ = measured("card+dm-crypt", "card+dm-crypt", refused="mkfs")
    assert steps(shell).count(f"create fsjoule-0 on {PART}") == 2


def test_a_device_in_use_gets_no_layer() -> None:
    shell = FakeShell(lambda argv: CommandResult(argv, 0, f"{PART} / ext4 rw 0 0\n" if argv[0] == "cat" else ""))
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    with pytest.raises(BoardError, match=f"{PART}, which may be overwritten, is mounted"):
        bench.measure(replace(entry(bench, "write-16k"), storage="card+dm-integrity"))
    assert steps(shell) == []


def test_fscrypt_is_made_with_the_feature_and_covers_the_mount() -> None:
    shell, _ = measured("card+fscrypt", name="ext4:nojournal")
    [make] = [argv for argv in shell.asked if argv[0] == "mkfs.ext4"]
    assert set(make[make.index("-O") + 1].split(",")) == {"^has_journal", "encrypt"}
    covered = [argv[4] for argv in shell.asked if argv[0] == "sh" and "set_encpolicy" in argv[2]]
    assert covered == [SCRATCH_DIRECTORY]


def test_an_aged_filesystem_keeps_its_age_on_fscrypt() -> None:
    for name in ("ext4@1y-logger", "ext4:noatime@1y-logger", "mine=ext4:commit=60@1y-logger"):
        made, plain = filesystem(stack("fscrypt").made_on(name)), filesystem(name)
        assert made.age == plain.age != None  # noqa: E711 - of a chain
        assert "encrypt" in made.make[made.make.index("-O") + 1]
    plan_entries(suite("quick"), planning(filesystems=("ext4@1y-logger",), stacks=("fscrypt",)))


def test_a_series_gives_its_storage_and_layers_back() -> None:
    series = rivals({"ext4": 1.0}, boots=1)[0].series
    one = replace(series, storage="stick A+B 16G (QEMU 7.2) + dm-integrity+dm-crypt:key=256")
    assert (one.device, one.stack) == ("stick A+B 16G (QEMU 7.2)", "dm-integrity+dm-crypt:key=256")
    assert name_of(one.storage, ["stick"]) == "stick+dm-integrity+dm-crypt:key=256"
    assert name_of("SD16+G (QEMU 7.2)", ["stick"]) == "card"


def test_what_a_layer_costs_is_told_beside_the_winner() -> None:
    plain, below = rivals({"ext4": 1.0, "f2fs": 0.9}), rivals({"ext4": 0.5, "f2fs": 0.6}, seed=2)
    layered = [replace(m, series=replace(m.series, storage=f"{m.series.storage} + dm-crypt")) for m in below]
    costs = {(one.subject.series.filesystem, one.metric): one for one in layer_costs([*plain, *layered])}
    slower = costs["ext4", Metric.THROUGHPUT]
    assert slower.ratio == pytest.approx(0.5, rel=0.02)
    assert slower.outcome is Outcome.REGRESSED
    assert costs["f2fs", Metric.ENERGY].ratio == pytest.approx(1.5, rel=0.02)
    assert layer_costs(plain) == layer_costs(layered) == ()
    summary = summarise(make_run(filesystems=("ext4",), repeat=1).run, [*plain, *layered])
    table = layers_table(summary)
    assert table is not None
    assert [cell.text for cell in table.rows[0]][1:4] == ["ext4", "dm-crypt", signed(slower.ratio, slower.interval)]
    assert layers_table(summarise(summary.run, plain)) is None
    alone = summarise(summary.run, layered)
    assert {row.label for row in alone.fio} == {"ext4 on dm-crypt", "f2fs on dm-crypt"}
    speed = next(one for one in contests([*plain, *layered]) if one.metric is Metric.THROUGHPUT)
    assert speed.names == ("ext4", "f2fs", "f2fs on dm-crypt", "ext4 on dm-crypt")
