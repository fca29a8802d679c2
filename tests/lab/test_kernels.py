"""Kernels that the user brings along, made here from Debian's: taken apart, put on cards, booted, told apart."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from bench_runs import run_bench
from lab_leftovers import assert_nothing_left

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.paths import cache_dir
from fsjoule.images import build_card, cached
from fsjoule.kernels import TakenKernel, build_kernel, take_kernels
from fsjoule.model import KernelOrigin, RunStatus
from fsjoule.store.reader import load_run

DEBIAN = "6.1"
DTB = "imx6ul-14x14-evk.dtb"


@pytest.fixture(scope="module")
def debian() -> TakenKernel:
    """Debian's kernel, from the cache of all tests or fetched into it; with it the rest of a card and the meter."""
    build_card(DEBIAN, "ext4")
    [kernel] = take_kernels([DEBIAN])
    return kernel


@pytest.fixture
def own_cache(debian: TakenKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has only what was fetched, so that nothing made here outlives the test."""
    fetched = cache_dir()
    own = tmp_path / "cache"
    (own / "images" / "kernel").mkdir(parents=True)
    (own / "images" / "userland").symlink_to(fetched / "images" / "userland")
    (own / "images" / "kernel" / debian.files.folder.name).symlink_to(debian.files.folder)
    (fetched / "meter").mkdir(exist_ok=True)
    (own / "meter").symlink_to(fetched / "meter")
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(own))
    return own


@pytest.fixture
def folder(debian: TakenKernel, tmp_path: Path) -> Path:
    """Debian's kernel as `make` and `make modules_install` would have left it."""
    build = tmp_path / "build"
    boot = build / "arch" / "arm" / "boot"
    (boot / "dts").mkdir(parents=True)
    shutil.copyfile(debian.files.folder / "zImage", boot / "zImage")
    shutil.copyfile(debian.files.folder / "board.dtb", boot / "dts" / DTB)
    shutil.copytree(debian.files.modules_root / "lib", build / "lib")
    return build


def make_package(folder: Path, name: str, files: dict[str, Path], *, depends: str = "dpkg") -> Path:
    """A Debian package with copies of files and folders, by their place in it."""
    tree = folder / name
    for place, source in files.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, tree / place)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 1-mine\nArchitecture: armhf\nDepends: {depends}\n"
        "Maintainer: a <a@b.c>\nDescription: a kernel\n"
    )
    file = folder / f"{name}_1-mine_armhf.deb"
    process.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, file], timeout_s=120)
    shutil.rmtree(tree)
    return file


@pytest.fixture
def package(debian: TakenKernel, folder: Path, tmp_path: Path) -> Path:
    """The same as a package file."""
    release = debian.facts.release
    files = {
        f"boot/vmlinuz-{release}": folder / "arch/arm/boot/zImage",
        f"usr/lib/linux-image-{release}/{DTB}": folder / "arch/arm/boot/dts" / DTB,
        "lib": folder / "lib",
    }
    return make_package(tmp_path, f"linux-image-{release}", files)


def module(folder: Path, name: str) -> Path:
    [found] = (folder / "lib").rglob(f"{name}.ko")
    return found


@pytest.mark.usefixtures("own_cache")
def test_one_kernel_is_the_same_wherever_it_comes_from(debian: TakenKernel, folder: Path, package: Path) -> None:
    named, packaged, built = take_kernels([DEBIAN, str(package), str(folder)])
    release = debian.facts.release
    assert [kernel.facts.origin for kernel in (named, packaged, built)] == [
        *(KernelOrigin.DEBIAN, KernelOrigin.PACKAGE, KernelOrigin.FOLDER)
    ]
    assert {kernel.facts.digest for kernel in (named, packaged, built)} == {debian.facts.digest}
    assert {kernel.facts.release for kernel in (named, packaged, built)} == {release}
    assert [kernel.facts.label for kernel in (named, packaged, built)] == [DEBIAN, release, "build"]
    assert packaged.facts.package == f"linux-image-{release} 1-mine"
    assert list(packaged.facts.checksums) == [package.name]
    assert list(built.facts.checksums) == ["arch/arm/boot/zImage", f"arch/arm/boot/dts/{DTB}", f"lib/modules/{release}"]


@pytest.mark.usefixtures("own_cache")
def test_packages_that_a_kernels_package_needs_are_found_beside_it(
    debian: TakenKernel, folder: Path, tmp_path: Path
) -> None:
    """As Debian splits its newer kernels: everything below /usr/lib/modules, in packages of their own."""
    release = debian.facts.release
    (tmp_path / "debs").mkdir()
    installed = f"usr/lib/modules/{release}"
    modules = make_package(
        tmp_path / "debs", f"linux-modules-{release}", {installed: folder / "lib" / "modules" / release}
    )
    files = {
        f"{installed}/vmlinuz": folder / "arch/arm/boot/zImage",
        f"{installed}/dtb/{DTB}": folder / "arch/arm/boot/dts" / DTB,
    }
    binary = make_package(tmp_path / "debs", f"linux-binary-{release}", files)
    depends = f"linux-binary-{release} (= 1-mine), linux-modules-{release} (= 1-mine), linux-base"
    image = make_package(tmp_path / "debs", f"linux-image-{release}", {}, depends=depends)
    [kernel] = take_kernels([str(image)])
    assert kernel.facts.digest == debian.facts.digest
    assert set(kernel.facts.checksums) == {image.name, binary.name, modules.name}
    modules.rename(tmp_path / modules.name)
    with pytest.raises(ConfigError, match=f"put linux-modules-{re.escape(release)} beside it"):
        take_kernels([str(image)])


@pytest.mark.usefixtures("own_cache")
def test_a_kernel_is_cached_by_its_content(folder: Path, tmp_path: Path, said: list[str]) -> None:
    [first] = take_kernels([str(folder)])
    assert said
    said.clear()
    moved = folder.rename(tmp_path / "moved")
    [again] = take_kernels([str(moved)])
    assert said == []
    assert again.files.folder == first.files.folder
    module(moved, "ext4").write_bytes(module(moved, "ext4").read_bytes() + b"changed")
    [changed] = take_kernels([str(moved)])
    assert said
    assert changed.facts.digest != first.facts.digest
    assert len([entry for entry in cached() if entry.name == "imx6ul-folder"]) == 2


@pytest.mark.usefixtures("own_cache")
def test_modules_of_another_kernel_than_the_image_are_refused(folder: Path, debian: TakenKernel) -> None:
    (folder / "lib" / "modules" / debian.facts.release).rename(folder / "lib" / "modules" / "6.1.0-older")
    complaint = rf"kernel image is {re.escape(debian.facts.release)}, but its modules belong to 6\.1\.0-older"
    with pytest.raises(ConfigError, match=complaint):
        take_kernels([str(folder)])


@pytest.mark.usefixtures("own_cache")
def test_a_kernel_without_the_cards_driver_is_refused_and_one_without_a_filesystem_is_not(folder: Path) -> None:
    module(folder, "btrfs").unlink()
    [kernel] = take_kernels([str(folder)])
    assert set(kernel.facts.lacks) == {"btrfs", "ntfs3"}  # Debian's has no ntfs3
    with pytest.raises(ConfigError, match="cannot mount a btrfs root: it has no btrfs"):
        build_card(kernel, "btrfs")
    module(folder, "sdhci_esdhc_imx").unlink()
    with pytest.raises(ConfigError, match="has no sdhci-esdhc-imx, neither built in nor as a module"):
        take_kernels([str(folder)])


@pytest.mark.usefixtures("own_cache")
def test_a_device_tree_of_another_board_is_refused(folder: Path) -> None:
    source = '/dts-v1/;\n/ { model = "another"; };\n'
    file = folder / "arch/arm/boot/dts" / DTB
    made = process.run(["dtc", "-O", "dtb"], input_bytes=source.encode(), timeout_s=10).stdout
    file.write_bytes(made)
    with pytest.raises(ConfigError, match="has no node '/timer'"):
        take_kernels([str(folder)])


# -------------------------------------------------------------------------------------------------------------- booted


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_package_file_and_a_build_folder_are_measured_in_one_run(
    debian: TakenKernel, folder: Path, package: Path, state: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    kernels = f"{package},{folder}"
    options = ("--kernel", kernels, "--fs", "ext4", "--repeat", "1", "--seed", "1", "-k", "boot or umount")
    done = run_bench(results, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = results.iterdir()
    loaded = load_run(path)
    run, release = loaded.run, debian.facts.release
    assert run.status is RunStatus.COMPLETE
    assert run.plan.kernels == (release, "build")
    assert [(kernel.label, kernel.asked) for kernel in run.kernels] == [(release, str(package)), ("build", str(folder))]
    assert {kernel.digest for kernel in run.kernels} == {debian.facts.digest}
    assert {label: board.kernel_release for label, board in run.boards.items()} == {release: release, "build": release}
    assert {(image.kernel_choice, image.root_filesystem) for image in run.images} == {
        (release, "ext4"),
        ("build", "ext4"),
    }
    assert sorted((m.kernel, m.slug, m.boot) for m in loaded.measurements) == sorted(
        (entry.kernel, entry.slug, 1 + (entry.kernel != run.plan.entries[0].kernel))
        for entry in run.plan.entries
        if entry.workload.slug in ("boot", "umount")
    )
    assert all(m.valid for m in loaded.measurements)
    assert f"kernels {release}, build" in done.stdout
    assert "Time by kernel" in done.stdout
    assert "all kernels run on one emulator, QEMU" in done.stdout
    assert "Kernels side by side" in (path / "report.html").read_text()
    assert_nothing_left(state, state / "devices")


@pytest.mark.usefixtures("own_cache")
def test_a_kernel_without_a_filesystem_of_the_plan_is_refused_before_the_lab_comes_up(
    folder: Path, state: Path, tmp_path: Path
) -> None:
    module(folder, "f2fs").unlink()
    done = run_bench(tmp_path / "results", "--kernel", str(folder), "--fs", "ext4,f2fs")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the kernel build has no f2fs" in done.stdout + done.stderr
    assert "virtual lab" not in done.stdout
    assert_nothing_left(state, state / "devices")
    assert not (tmp_path / "results").exists()


# --------------------------------------------------------------------------------------------------------------- built


@pytest.mark.skipif(
    "FSJOULE_KERNEL_TREE" not in os.environ,
    reason="two builds of a kernel take 20 minutes, and its source is not fetched: name a clone in FSJOULE_KERNEL_TREE",
)
@pytest.mark.usefixtures("own_cache")
def test_a_kernel_is_built_the_same_from_anywhere_and_boots(state: Path, tmp_path: Path, said: list[str]) -> None:
    """Slow: two builds of a kernel. Needs what docs/kernels.md names."""
    tree = Path(os.environ["FSJOULE_KERNEL_TREE"])
    first = build_kernel(tree, "HEAD")
    assert build_kernel(tree, "HEAD") == first
    assert said == []
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "elsewhere"))
        second = build_kernel(tree, "HEAD")
    assert (second / "zImage").read_bytes() == (first / "zImage").read_bytes()
    notes = json.loads((first / "fsjoule.json").read_text())
    done = run_bench(tmp_path / "results", "--kernel", str(first), "--fs", "ext4", "--repeat", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = (tmp_path / "results").iterdir()
    assert load_run(path).run.kernels[0].git_describe == notes["git_describe"]
    assert_nothing_left(state, state / "devices")
