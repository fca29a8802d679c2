"""A mirror whose package lists do not belong to its release file, as caches before a mirror serve for days."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fsjoule.errors import HostError
from fsjoule.host.apt import DebianArchive
from fsjoule.host.messages import lines_to

# What apt 2.6 said of such a mirror in November 2026.
OUT_OF_STEP = """apt-get failed with exit code 100: Get:1 http://deb.debian.org/debian trixie InRelease [140 kB]
Err:2 http://deb.debian.org/debian trixie/main armhf Packages
  File has unexpected size (9246492 != 9246996). Mirror sync in progress? [IP: 203.0.113.80 80]
E: Some index files failed to download. They have been ignored, or old ones used instead."""
RELEASE = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nSuite: {}\nVersion: 13.8\nCodename: {}\n"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def _mirror(folder: Path, **codenames: str) -> Generator[str]:
    """A server of release files: names of suites with the codename that each has."""
    for name, codename in codenames.items():
        (folder / "dists" / name).mkdir(parents=True)
        (folder / "dists" / name / "InRelease").write_text(RELEASE.format("stable", codename))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _fetch(archive: DebianArchive, *bad: str, text: str = OUT_OF_STEP) -> tuple[list[str], list[str]]:
    """The suites that were tried and what was said, where the lists of `bad` suites are out of step."""
    tried, said = list[str](), list[str]()

    def attempt(source: DebianArchive) -> None:
        tried.append(source.suite)
        if source.suite in bad:
            raise HostError(text, transient=True)

    try:
        with lines_to(said.append):
            archive.fetch(attempt)
    except HostError as error:
        said.append(str(error))
    return tried, said


def test_the_same_release_is_taken_under_its_other_name(tmp_path: Path) -> None:
    with _mirror(tmp_path, trixie="trixie", stable="trixie") as url:
        tried, [said] = _fetch(DebianArchive(url, "trixie"), "trixie")
        assert tried == ["trixie", "stable"]
        assert said == (
            f"{url} serves package lists of trixie that do not belong to its release file; the same release is taken "
            "under its name stable"
        )
        assert _fetch(DebianArchive(url, "stable"), "stable")[0] == ["stable", "trixie"]


def test_a_mirror_out_of_step_under_both_names_is_the_fault_that_is_told(tmp_path: Path) -> None:
    with _mirror(tmp_path, trixie="trixie", stable="trixie") as url:
        tried, said = _fetch(DebianArchive(url, "trixie"), "trixie", "stable")
    assert tried == ["trixie", "stable"]
    assert said[-1].splitlines()[0] == (
        f"{url} serves package lists of trixie that do not belong to its release file: "
        "File has unexpected size (9246492 != 9246996)"
    )


@pytest.mark.parametrize("others", [{}, {"stable": "forky"}], ids=["no other name", "another release has it"])
def test_another_release_is_never_taken(tmp_path: Path, others: dict[str, str]) -> None:
    with _mirror(tmp_path, trixie="trixie", **others) as url:
        tried, [said] = _fetch(DebianArchive(url, "trixie"), "trixie")
    assert tried == ["trixie"]
    assert "do not belong to its release file: File has unexpected size" in said


def test_another_fault_is_told_as_it_is(tmp_path: Path) -> None:
    with _mirror(tmp_path, trixie="trixie", stable="trixie") as url:
        tried, said = _fetch(DebianArchive(url, "trixie"), "trixie", text="apt-get failed: 404 Not Found")
    assert (tried, said) == (["trixie"], ["apt-get failed: 404 Not Found"])
