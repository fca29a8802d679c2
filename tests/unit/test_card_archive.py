"""A card in one file: what is refused, and that the cache is then as it was."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from fsjoule.errors import ConfigError, HostError
from fsjoule.host.cache import locks, stages
from fsjoule.host.unpacking import tar_within
from fsjoule.images import card_archive
from fsjoule.images.card_archive import export_card, import_card

KEY = "0123456789abcdef"

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Begins another cache."""

    def begin(name: str) -> Path:
        locks.let_go()
        monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / name))
        return stages.images_cache()

    return begin


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A card of a few bytes, through the real cache; `kernel` is what its kernel's package has at this moment."""
    toy = SimpleNamespace(kernel="6.1.1", key=KEY)

    def kernel(folder: Path) -> None:
        (folder / "zImage").write_text(toy.kernel)
        (folder / "modules").mkdir()
        (folder / "modules" / "ext4.ko").symlink_to("/lib/ext4.ko")
        (folder / "modules").chmod(0o555)

    def card(folder: Path) -> None:
        with (folder / "card.img").open("wb") as image:
            image.truncate(1 << 20)
            image.seek(1 << 19)
            image.write(b"content")

    def build_card(*_: object, **__: object) -> SimpleNamespace:
        stages.build_once("kernel", "toy", KEY, kernel)
        return SimpleNamespace(path=stages.build_once("card", "toy", toy.key, card, read=True) / "card.img")

    monkeypatch.setattr(card_archive, "build_card", build_card)
    monkeypatch.setattr(card_archive, "emulator", lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]
    return toy


@pytest.fixture
def packed(tmp_path: Path, cache: Callable[[str], Path]) -> Path:
    cache("first")
    file = tmp_path / "card.tar.zst"
    export_card("6.1", "ext4", file)
    return file


def members_of(file: Path) -> Members:
    with tar_within(file, 1 << 24) as archive:
        return [(each, archive.extractfile(each).read() if each.isreg() else b"") for each in archive]  # pyright: ignore[reportOptionalMemberAccess]


def pack(members: Members, file: Path) -> Path:
    stream: Any = pa.output_stream(str(file), compression="zstd")  # pyright: ignore[reportUnknownMemberType]
    with stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.startswith("."))


def test_a_card_reaches_another_cache_whole(packed: Path, cache: Callable[[str], Path]) -> None:
    there = cache("second")
    card = import_card(packed)
    assert card.path == there / "card" / f"toy-{KEY}" / "card.img"
    assert card.path.read_bytes()[1 << 19 :][:7] == b"content"
    assert card.path.stat().st_blocks * 512 < 1 << 19  # zeros are holes
    assert [entry.damage for entry in stages.cached()] == [None, None]
    assert (there / f"kernel/toy-{KEY}/modules/ext4.ko").readlink() == Path("/lib/ext4.ko")
    assert import_card(packed).path == card.path
    assert not list(there.glob(".import-*"))


def test_a_damaged_entry_is_replaced_and_a_whole_one_stays(packed: Path, cache: Callable[[str], Path]) -> None:
    there = cache("second")
    import_card(packed)
    (there / f"card/toy-{KEY}/card.img").write_text("nothing")
    before = (there / f"kernel/toy-{KEY}").stat().st_ino
    assert import_card(packed).path.stat().st_size == 1 << 20
    assert (there / f"kernel/toy-{KEY}").stat().st_ino == before


def test_another_kernel_in_its_place_is_refused(
    packed: Path, cache: Callable[[str], Path], toy: SimpleNamespace
) -> None:
    there = cache("second")
    toy.kernel = "6.1.2"
    card_archive.build_card("6.1", "ext4")
    with pytest.raises(ConfigError, match="the cache has another kernel/toy"):
        import_card(packed)
    assert (there / f"kernel/toy-{KEY}/zImage").read_text() == "6.1.2"


def test_a_card_that_this_fsjoule_makes_differently_is_refused(
    packed: Path, cache: Callable[[str], Path], toy: SimpleNamespace
) -> None:
    there = cache("second")
    toy.key = KEY[::-1]
    with pytest.raises(ConfigError, match="makes another card of recipe"):
        import_card(packed)
    assert files_in(there) == ["card", "kernel"]
    card_archive.build_card("6.1", "ext4")
    with pytest.raises(ConfigError, match="makes another card of recipe"):
        import_card(packed)  # its own card is there already
    assert [entry.key for entry in stages.cached(stages=["card"])] == [toy.key]


def test_an_import_that_fails_halfway_leaves_nothing(
    packed: Path, cache: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = cache("second")

    def adopt(entry: Path, stage: str) -> bool:
        if stage == "card":
            raise HostError("another process holds its lock", transient=True)
        return stages.adopt(entry, stage)

    monkeypatch.setattr(card_archive, "adopt", adopt)
    with pytest.raises(HostError, match="another process holds its lock"):
        import_card(packed)
    assert files_in(there) == ["kernel"]


def test_an_entry_is_the_same_with_any_umask(packed: Path, cache: Callable[[str], Path]) -> None:
    there, usual = cache("second"), os.umask(0o077)
    try:
        card_archive.build_card("6.1", "ext4")
        import_card(packed)  # it has the same digests
        cache("third")
        imported = import_card(packed)
    finally:
        os.umask(usual)
    for folder in (there / f"card/toy-{KEY}", imported.path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_file_that_is_cut_short_or_changed_is_refused(
    packed: Path, cache: Callable[[str], Path], tmp_path: Path
) -> None:
    content, there = packed.read_bytes(), cache("second")
    half = len(content) // 2
    changed = content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :]
    for damaged in (content[:half], changed, b"", b"frogs" * 1000):
        file = tmp_path / "damaged.tar.zst"
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"is damaged|is not a card image"):
            import_card(file)
    assert files_in(there) == []


def rename(members: Members, name: str) -> None:
    members[-1][0].name = name


def head(members: Members, **changes: object) -> None:
    members[0] = (members[0][0], json.dumps(json.loads(members[0][1]) | changes).encode())


def as_device(members: Members) -> None:
    members[-1][0].type = tarfile.CHRTYPE


def other_content(members: Members) -> None:
    at = next(number for number, (member, _) in enumerate(members) if member.name.endswith("zImage"))
    members[at] = (members[at][0], b"6.9.9")


CASES: list[tuple[Callable[[Members], object], str]] = [
    (lambda all_: rename(all_, f"card/toy-{KEY}/../../../escaped"), "does not belong there"),
    (lambda all_: rename(all_, "/etc/escaped"), "does not belong there"),
    (lambda all_: rename(all_, f"card/other-{KEY}/card.img"), "does not belong there"),
    (lambda all_: all_.append(all_[-1]), "is twice in it"),
    (as_device, "is neither a file, a folder nor a link"),
    (other_content, "zImage has"),
    (lambda all_: all_.pop(), "is missing|is not a folder"),
    (lambda all_: head(all_, entries={"card/../..": "0"}), "is not the place of an entry"),
    (lambda all_: head(all_, version=2, fsjoule="9.9"), r"is of version 2 of its format.*\n.*9\.9"),
    (lambda all_: head(all_, schema="frogs"), "is damaged"),
    (lambda all_: all_.pop(0), "does not begin with fsjoule-image.json"),
]


@pytest.mark.parametrize(
    ("change", "why"),
    CASES,
    ids=["out", "root", "other", "twice", "device", "content", "lacking", "place", "newer", "schema", "headless"],
)
def test_what_does_not_belong_there_is_refused(
    change: Callable[[Members], object], why: str, packed: Path, cache: Callable[[str], Path], tmp_path: Path
) -> None:
    members = members_of(packed)
    change(members)
    there = cache("second")
    with pytest.raises(ConfigError, match=rf"(?s){why}"):
        import_card(pack(members, tmp_path / "changed.tar.zst"))
    assert files_in(there) == []
    assert not list(tmp_path.rglob("escaped"))


def test_only_kernels_that_others_can_have_are_exported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is on this computer only"):
        export_card("./linux", "ext4", tmp_path / "card.tar.zst")


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path, cache: Callable[[str], Path]) -> None:
    cache("second")
    with pytest.raises(ConfigError, match="is not a file"):
        import_card(tmp_path / "card.tar.zst")


def test_what_is_not_in_the_cache_is_not_built_for_an_import(cache: Callable[[str], Path]) -> None:
    cache("second")
    with stages.recorded(build=False), pytest.raises(HostError, match="the cache has no whole kernel"):
        card_archive.build_card("6.1", "ext4")
