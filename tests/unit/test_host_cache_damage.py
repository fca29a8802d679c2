"""Every kind of damage at every stage of the cache: it is seen, told, never used, built again and cleaned away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command_line import PROGRAM, CommandLine, command_line
from unprivileged import run_unprivileged

from fsjoule.errors import LabError, StorageError
from fsjoule.host import process
from fsjoule.host.cache import locks
from fsjoule.host.cache.contents import file_digest
from fsjoule.host.cache.locks import discard
from fsjoule.host.cache.stages import STAGES, build_once, cached, clean, damage, entry_digest
from fsjoule.model import MIB

NAME, KEY = "imx6ul-6.1", "0123456789abcdef"
DATA_AT = 3 * MIB  # in an image that has holes elsewhere


def write_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * MIB)
        file.seek(DATA_AT)
        file.write(os.urandom(1000) + bytes(70_000) + b"end")


def fill(stage: str, folder: Path) -> None:
    """What each stage leaves, in small."""
    match stage:
        case "card" | "partition":
            write_image(folder / ("card.img" if stage == "card" else "root.img"))
            (folder / "card.img.bmap").write_text("<bmap/>")
            (folder / "facts.json").write_text("{}\n")
        case _:
            (folder / "tree" / "usr" / "bin").mkdir(parents=True)
            (folder / "tree" / "usr" / "bin" / "busybox").write_bytes(b"\x7fELF" * 1000)
            (folder / "tree" / "bin").symlink_to("usr/bin")
            (folder / f"{stage}.json").write_text('{"package": "linux-image"}\n')
            (folder / "empty").mkdir()


def largest(folder: Path) -> Path:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return max((path for path in files if path.name != "entry.json"), key=lambda path: path.stat().st_size)


def flip_a_byte(folder: Path) -> None:
    file = largest(folder)
    at = DATA_AT + 10 if file.suffix == ".img" else 10
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))


def fill_a_hole(folder: Path) -> None:
    with largest(folder).open("r+b") as opened:
        opened.write(b"\1")


def truncate(folder: Path) -> None:
    os.truncate(largest(folder), 100)


def lose_a_file(folder: Path) -> None:
    largest(folder).unlink()


def lose_a_small_file(folder: Path) -> None:
    next(folder.glob("*.json" if not (folder / "card.img.bmap").exists() else "*.bmap")).unlink()


def add_a_file(folder: Path) -> None:
    (folder / "stray").touch()


def change_a_mode(folder: Path) -> None:
    largest(folder).chmod(0o600)


def replace_a_file_by_a_link(folder: Path) -> None:
    file = largest(folder)
    file.rename(folder.parent / ".elsewhere")
    file.symlink_to(folder.parent / ".elsewhere")


def replace_a_file_by_a_folder(folder: Path) -> None:
    file = largest(folder)
    file.unlink()
    file.mkdir()


def empty_a_file(folder: Path) -> None:
    os.truncate(largest(folder), 0)


def garble_the_entry(folder: Path) -> None:
    (folder / "entry.json").write_bytes(b"\xff\x00{")


def empty_the_entry(folder: Path) -> None:
    os.truncate(folder / "entry.json", 0)


def cut_the_entry(folder: Path) -> None:
    os.truncate(folder / "entry.json", (folder / "entry.json").stat().st_size // 2)


def lose_the_entry(folder: Path) -> None:
    (folder / "entry.json").unlink()


def take_an_older_entry(folder: Path) -> None:
    """As it was before entries recorded what they hold."""
    stored = json.loads((folder / "entry.json").read_text())
    (folder / "entry.json").write_text(
        json.dumps({key: stored[key] for key in ("stage", "name", "key", "created_utc")})
    )


def forget_a_file(folder: Path) -> None:
    stored = json.loads((folder / "entry.json").read_text())
    stored["contents"].pop(largest(folder).relative_to(folder).as_posix())
    (folder / "entry.json").write_text(json.dumps(stored))


def nest_the_entry(folder: Path) -> None:
    (folder / "entry.json").write_text("[" * 200_000)


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def replace_by_a_dangling_link(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


def replace_by_a_link_to_another(folder: Path) -> None:
    folder.rename(folder.parent / ".elsewhere")
    folder.symlink_to(".elsewhere")


def replace_by_an_empty_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


KINDS: tuple[Callable[[Path], None], ...] = (
    flip_a_byte,
    truncate,
    empty_a_file,
    lose_a_file,
    lose_a_small_file,
    add_a_file,
    change_a_mode,
    replace_a_file_by_a_link,
    replace_a_file_by_a_folder,
    garble_the_entry,
    empty_the_entry,
    cut_the_entry,
    lose_the_entry,
    take_an_older_entry,
    forget_a_file,
    nest_the_entry,
    replace_by_a_file,
    replace_by_a_dangling_link,
    replace_by_a_link_to_another,
    replace_by_an_empty_folder,
)


@pytest.fixture
def memory(tmp_path: Path) -> Generator[Path]:
    """A folder in memory, if there is such a place: each entry waits for its disk."""
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def built(root: Path, stage: str, said: list[str]) -> Path:
    return build_once(stage, NAME, KEY, lambda folder: fill(stage, folder), progress=said.append, root=root)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], memory: Path) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(memory))
    return command_line(monkeypatch, capfd)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_damage_is_told_and_the_entry_built_again(kind: Callable[[Path], None], stage: str, memory: Path) -> None:
    said: list[str] = []
    entry = built(memory, stage, said)
    assert damage(entry) is None
    kind(entry)
    why = damage(entry)
    assert why is not None
    assert [each.damage for each in cached(memory) if each.path == entry] == [why]
    again = built(memory, stage, said)
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
    entry = built(root, "card", [])
    whole = built(root, "kernel", [])
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
    entry = built(tmp_path, "card", [])
    image = entry / "card.img"
    content = image.read_bytes()
    digest = file_digest(image)
    image.write_bytes(content)  # without holes, as an archive would give it back
    assert file_digest(image) == digest
    assert damage(entry) is None
    fill_a_hole(entry)
    assert damage(entry) == "card.img has changed"


def test_what_was_read_once_is_not_read_again_until_it_was_touched(tmp_path: Path) -> None:
    entry = built(tmp_path, "card", [])
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
    entry = built(tmp_path, "card", [])
    found = (entry / "card.img").stat()
    flip_a_byte(entry)
    os.utime(entry / "card.img", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert damage(entry) == "card.img has changed"


def test_equal_content_has_an_equal_digest_whenever_it_was_built(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "file").write_text("text")

    one = build_once("kernel", "a", "k1", write, progress=print, root=tmp_path)
    two = build_once("kernel", "b", "k2", write, progress=print, root=tmp_path)
    other = built(tmp_path, "kernel", [])
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
    assert damage(built(memory / "images", "card", [])) is None


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
    entry = built(root, "card", [])
    locks.let_go()
    beside = entry.with_name(f".{entry.name}.{kind}")
    beside.unlink()
    put(beside)
    assert [each["damage"] for each in run("image", "list", "--json").document] == [None]
    assert built(root, "card", []) == entry
    locks.let_go()
    discard(beside)
    put(beside)
    assert run("image", "clean").code == 0
    assert not list((root / "card").iterdir())


def test_a_fifo_in_the_place_of_an_entry_s_record_is_damage(run: CommandLine, memory: Path) -> None:
    root = memory / "images"
    entry = built(root, "card", [])
    (entry / "entry.json").unlink()
    os.mkfifo(entry / "entry.json")
    (shown,) = run("image", "list", "--json").document
    assert "it is a FIFO" in shown["damage"]
    said: list[str] = []
    assert damage(built(root, "card", said)) is None
    assert "it is a FIFO" in said[0]


def test_names_with_brackets_are_names(memory: Path) -> None:
    """What a killed builder left of such an entry goes away, and nothing of another."""
    for name in ("a[bc]", "ab"):
        (memory / "kernel" / f".{name}-k.part-left").mkdir(parents=True)
    entry = build_once("kernel", "a[bc]", "k", lambda folder: (folder / "x").touch(), progress=print, root=memory)
    left = [path.name for path in (memory / "kernel").glob(".*part*")]
    assert (damage(entry), left) == (None, [".ab-k.part-left"])


# ------------------------------------------------------------------------------------------------ other processes

USER = """
import sys, time
from pathlib import Path
from fsjoule.host.cache.stages import build_once

build_once("card", "a", "key", lambda folder: (folder / "file").touch(), progress=print, root=Path(sys.argv[1]))
print("uses it", flush=True)
time.sleep(60)
"""


@contextmanager
def user(root: Path) -> Generator[int]:
    """The process id of a run that uses an entry."""
    with subprocess.Popen([sys.executable, "-c", USER, root], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"uses it\n"
            yield process.pid
        finally:
            process.kill()


def test_what_another_process_uses_is_kept_and_the_rest_removed(run: CommandLine, memory: Path) -> None:
    root = memory / "images"
    built(root, "kernel", [])
    with user(root):
        cleaned = run("image", "clean")
        assert cleaned.code == LabError.exit_code
        assert "kept card a: another process uses it" in cleaned.err
        assert [(each.stage, each.damage) for each in cached(root)] == [("card", None)]
    assert run("image", "clean").code == 0
    assert not cached(root)


def test_a_stage_that_a_builder_has_just_made_is_not_cleaned_away(memory: Path) -> None:
    (memory / "card").write_text("wrong")
    found = cached(memory)
    assert [each.path for each in found] == [memory / "card"]
    built(memory, "card", [])
    clean(found, progress=lambda _line: None)
    assert [each.damage for each in cached(memory)] == [None]


def test_builders_and_cleaners_side_by_side_find_whole_entries_only(memory: Path) -> None:
    """Five processes that build and look at an entry eight times each, while it is cleaned away all the time."""
    script = """
import sys
from pathlib import Path
from fsjoule.host.cache import locks, stages
root = Path(sys.argv[1])
def build(folder):
    for number in range(20):
        (folder / str(number)).write_text("whole")
for _ in range(8):
    entry = stages.build_once("card", "a", "key", build, progress=[].append, root=root)
    assert sorted(path.name for path in entry.iterdir()) == sorted(["entry.json", *map(str, range(20))])
    for lock in list(locks._used):  # as if this process had ended
        locks._used.pop(lock).close()
"""
    command = [sys.executable, "-c", script, str(memory)]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(5)]
    try:
        while any(builder.poll() is None for builder in builders):
            with suppress(LabError):  # it is used right now
                clean(cached(memory), progress=lambda _line: None)
        said = [builder.communicate()[0].decode() for builder in builders]
    finally:
        for builder in builders:
            builder.kill()
            builder.wait()
    assert [(builder.returncode, text) for builder, text in zip(builders, said, strict=True)] == [(0, "")] * 5


# ------------------------------------------------------------------------------------------- disks and permissions


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """An empty filesystem of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "fsjoule-test", place], timeout=10, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        locks.let_go()
        subprocess.run(["umount", place], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")


@needs_root
def test_a_full_disk_is_told_and_no_half_entry_stays(
    small_disk: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(small_disk))
    root = small_disk / "images"
    kept = build_once("kernel", "small", "k", lambda folder: (folder / "file").touch(), progress=print, root=root)

    def too_much(folder: Path) -> None:
        (folder / "much").write_bytes(bytes(4 * MIB))

    with pytest.raises(StorageError, match="the disk of the cache is full") as caught:
        build_once("card", "a", "k", too_much, progress=print, root=root)
    assert "fsjoule image clean" in str(caught.value)
    assert not caught.value.transient
    with pytest.raises(StorageError, match="the disk of the cache is full"):  # a program that we start is told as well
        build_once("card", "a", "k", copy_too_much, progress=print, root=root)
    assert not list((root / "card").glob(".*part*"))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(4 * MIB))
    # With no byte left: what is there is used, shown and cleaned away.
    assert damage(kept) is None
    assert run("image", "list").code == 0
    assert run("image", "clean").code == 0
    assert not cached(root)


def copy_too_much(folder: Path) -> None:
    process.run(["cp", "/proc/self/exe", folder / "one"], timeout_s=30)
    process.run(["dd", "if=/dev/zero", f"of={folder / 'two'}", "bs=1M", "count=4"], timeout_s=30)


@needs_root
def test_a_cache_that_is_read_only_is_used_and_what_is_not_in_it_is_told(
    small_disk: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(small_disk))
    root = small_disk / "images"
    entry = build_once("kernel", "small", "k", lambda folder: (folder / "file").touch(), progress=print, root=root)
    locks.let_go()
    for lock in (root / "kernel").glob(".*"):
        lock.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    again = build_once("kernel", "small", "k", never_called, progress=print, root=root)
    assert again == entry
    with pytest.raises(StorageError, match=r"the cache cannot be written: .*Read-only") as caught:
        build_once("kernel", "other", "k", never_called, progress=print, root=root)
    assert "FSJOULE_CACHE_DIR=FOLDER" in str(caught.value)
    listed = run("image", "list", "--json")
    assert (listed.code, [each["damage"] for each in listed.document]) == (0, [None])
    cleaned = run("image", "clean")
    assert (cleaned.code, "cannot be written" in cleaned.err) == (StorageError.exit_code, True)


def never_called(_folder: Path) -> None:
    raise AssertionError("built")


def test_an_entry_that_may_not_be_read_is_shown_and_told(tmp_path: Path) -> None:
    entry = built(tmp_path / "images", "card", [])
    entry.chmod(0)
    listed = run_unprivileged([str(PROGRAM), "image", "list", "--json"], {"FSJOULE_CACHE_DIR": str(tmp_path)})
    entry.chmod(0o755)
    assert listed.returncode == 0, listed.stderr
    (shown,) = json.loads(listed.stdout)
    assert shown["damage"] == "it cannot be read: Permission denied"


def test_a_stage_that_may_not_be_read_hinders_no_other(tmp_path: Path) -> None:
    root = tmp_path / "images"
    built(root, "kernel", [])
    whole = built(root, "card", [])
    locks.let_go()
    locked_away = root / "kernel"
    locked_away.chmod(0)
    environment = {"FSJOULE_CACHE_DIR": str(tmp_path)}
    try:
        listed = run_unprivileged([str(PROGRAM), "image", "list", "--json"], environment)
        cleaned = run_unprivileged([str(PROGRAM), "image", "clean"], environment)
    finally:
        locked_away.chmod(0o755)
    assert listed.returncode == 0, listed.stderr
    assert [(each["path"], each["damage"]) for each in json.loads(listed.stdout)] == [
        (str(locked_away), "it cannot be read: Permission denied"),
        (str(whole), None),
    ]
    assert cleaned.returncode == StorageError.exit_code, cleaned.stderr
    assert f"the cache cannot be written: {locked_away}: Permission denied" in cleaned.stderr
    assert f"remove by hand: {locked_away}" in cleaned.stderr
    assert not whole.exists()
