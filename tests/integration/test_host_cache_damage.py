"""Every kind of damage at every stage of the cache: it is seen, told, never used, built again and cleaned away."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from cache_damage import KEY, KINDS, NAME, built, fill_a_hole, flip_a_byte, in_memory
from command_line import CommandLine

from fsjoule.errors import HostError
from fsjoule.host.cache import locks
from fsjoule.host.cache.contents import file_digest, fingerprint
from fsjoule.host.cache.locks import discard
from fsjoule.host.cache.stages import STAGES, build_once, cached, check_whole, damage, entry_digest


@pytest.fixture
def memory(tmp_path: Path) -> Generator[Path]:
    with in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, memory: Path) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(memory))
    return fsjoule


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_damage_is_told_and_the_entry_built_again(
    kind: Callable[[Path], None], stage: str, memory: Path, said: list[str]
) -> None:
    entry = built(memory, stage)
    assert damage(entry) is None
    kind(entry)
    why = damage(entry)
    assert why is not None
    assert [each.damage for each in cached(memory) if each.path == entry] == [why]
    again = built(memory, stage)
    assert again == entry
    assert said == [f"the cached {stage} {NAME} is damaged: {why}; building it again"]
    assert damage(again) is None
    assert [(each.name, each.key, each.damage) for each in cached(memory)] == [(NAME, KEY, None)]
    assert not list((memory / stage).glob(".*part*"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_commands_show_damage_and_clean_it_away(
    kind: Callable[[Path], None], run: CommandLine, memory: Path
) -> None:
    root = memory / "images"
    entry = built(root, "card")
    whole = built(root, "kernel")
    kind(entry)
    listed = run("image", "list", "--json")
    assert listed.code == 0
    assert [each["damage"] is None for each in listed.document] == [True, False]
    shown = run("image", "list")
    assert shown.code == 0
    assert shown.out.count("damaged:") == 1
    cleaned = run("image", "clean", "--json")
    assert cleaned.code == 0
    assert cleaned.document["removed"] == [str(whole), str(entry)]
    assert not os.path.lexists(entry)
    assert run("image", "list", "--json").document == []


def test_a_hole_that_is_filled_is_damage_and_zeros_instead_of_a_hole_are_not(tmp_path: Path) -> None:
    entry = built(tmp_path, "card")
    image = entry / "card.img"
    content = image.read_bytes()
    digest = file_digest(image)
    image.write_bytes(content)  # without holes, as an archive would give it back
    assert file_digest(image) == digest
    assert damage(entry) is None
    fill_a_hole(entry)
    assert damage(entry) == "card.img has changed"


def test_what_was_read_once_is_not_read_again_until_it_was_touched(tmp_path: Path) -> None:
    entry = built(tmp_path, "card")
    stamp = entry.with_name(f".{entry.name}.checked")
    image = entry / "card.img"
    assert stamp.exists()
    # The same content, written anew: it is read again, and noted.
    before = stamp.read_text()
    image.write_bytes(image.read_bytes())
    assert damage(entry) is None
    assert stamp.read_text() != before
    # A stamp that is damaged costs a comparison, no more.
    stamp.write_bytes(b"\xff")
    assert damage(entry) is None
    flip_a_byte(entry)
    assert damage(entry) == "card.img has changed"


def test_a_byte_that_changes_with_its_time_set_back_is_seen(tmp_path: Path) -> None:
    entry = built(tmp_path, "card")
    found = (entry / "card.img").stat()
    flip_a_byte(entry)
    os.utime(entry / "card.img", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert damage(entry) == "card.img has changed"


def test_a_bit_that_the_disk_lost_is_seen_by_who_reads(tmp_path: Path, said: list[str]) -> None:
    """No metadata tell it, as if the last look had been after it."""
    entry = built(tmp_path, "card")
    flip_a_byte(entry)
    entry.with_name(f".{entry.name}.checked").write_text(fingerprint(entry))
    assert damage(entry) is None
    assert damage(entry, read=True) == "card.img has changed"
    with pytest.raises(HostError, match=r"card\.img has changed"):
        check_whole(entry)
    assert built(tmp_path, "card", read=True) == entry
    assert said == [f"the cached card {NAME} is damaged: card.img has changed; building it again"]
    check_whole(entry)


def test_equal_content_has_an_equal_digest_whenever_it_was_built(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "file").write_text("text")

    one = build_once("kernel", "a", "k1", write, root=tmp_path)
    two = build_once("kernel", "b", "k2", write, root=tmp_path)
    other = built(tmp_path, "kernel")
    assert entry_digest(one) == entry_digest(two) != entry_digest(other)


def put_a_file(path: Path) -> None:
    path.write_text("")


def put_a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_a_file, put_a_dangling_link], ids=lambda put: put.__name__)
def test_what_stands_in_the_place_of_a_stage_is_shown_and_goes_away(
    put: Callable[[Path], None], run: CommandLine, memory: Path
) -> None:
    (memory / "images").mkdir()
    stage = memory / "images" / "card"
    put(stage)
    assert [each["path"] for each in run("image", "list", "--json").document] == [str(stage)]
    assert run("image", "clean").code == 0
    assert not os.path.lexists(stage)
    put(stage)
    assert damage(built(memory / "images", "card")) is None


def test_what_an_interrupted_build_left_is_listed_and_goes_away(run: CommandLine, memory: Path) -> None:
    left = memory / "images" / "card" / f".{NAME}-{KEY}.part-abc"
    left.mkdir(parents=True)
    (left / "half").write_bytes(bytes(100_000))
    (shown,) = run("image", "list", "--json").document
    assert (shown["name"], shown["damage"]) == (NAME, "its build was interrupted")
    assert run("image", "clean").code == 0
    assert not left.exists()


def put_a_folder(path: Path) -> None:
    (path / "in" / "it").mkdir(parents=True)


BESIDE = ("lock", "use", "checked")


@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("put", [put_a_folder, os.mkfifo, put_a_dangling_link], ids=lambda put: put.__name__)
def test_what_stands_in_the_place_of_a_lock_or_a_note_hinders_nothing(
    put: Callable[[Path], None], kind: str, run: CommandLine, memory: Path
) -> None:
    root = memory / "images"
    entry = built(root, "card")
    locks.let_go()
    beside = entry.with_name(f".{entry.name}.{kind}")
    beside.unlink()
    put(beside)
    assert [each["damage"] for each in run("image", "list", "--json").document] == [None]
    assert built(root, "card") == entry
    locks.let_go()
    discard(beside)
    put(beside)
    assert run("image", "clean").code == 0
    assert not list((root / "card").iterdir())


def test_a_fifo_in_the_place_of_an_entry_s_record_is_damage(run: CommandLine, memory: Path, said: list[str]) -> None:
    root = memory / "images"
    entry = built(root, "card")
    (entry / "entry.json").unlink()
    os.mkfifo(entry / "entry.json")
    (shown,) = run("image", "list", "--json").document
    assert "it is a FIFO" in shown["damage"]
    assert damage(built(root, "card")) is None
    assert "it is a FIFO" in said[0]


def test_names_with_brackets_are_names(memory: Path) -> None:
    """What a killed builder left of such an entry goes away, and nothing of another."""
    for name in ("a[bc]", "ab"):
        (memory / "kernel" / f".{name}-k.part-left").mkdir(parents=True)
    entry = build_once("kernel", "a[bc]", "k", lambda folder: (folder / "x").touch(), root=memory)
    left = [path.name for path in (memory / "kernel").glob(".*part*")]
    assert (damage(entry), left) == (None, [".ab-k.part-left"])
