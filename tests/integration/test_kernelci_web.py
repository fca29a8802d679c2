"""KernelCI's API, its storage and KCIDB as a lab asks them: refusals, redirects, answers that never end or are none."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from kernelci_server import KCIDB_TOKEN, TOKEN, KernelCI, kernelci_server

from fsjoule.ci.kernelci.api import Api, Kcidb, asked, download, kcidb_of
from fsjoule.errors import ConfigError, KernelCIError
from fsjoule.host.web import is_address


@pytest.fixture
def kernelci() -> Generator[KernelCI]:
    with kernelci_server() as has:
        yield has


def test_an_answer_that_is_not_the_apis_is_refused(kernelci: KernelCI) -> None:
    kernelci.files["/storage/events"] = b'{"detail": "hello"}'
    with pytest.raises(KernelCIError, match="does not answer as KernelCI's API does"):
        Api(f"{kernelci.url}/storage", TOKEN).waiting("1970-01-01T00:00:00")
    with pytest.raises(KernelCIError, match="is no node of KernelCI's"):
        Api(kernelci.api, TOKEN).node("../../whoami")
    kernelci.faults["/latest/whoami"] = 503
    with pytest.raises(KernelCIError) as caught:
        Api(kernelci.api, TOKEN).user()
    assert caught.value.transient


def test_kcidb_takes_a_document_or_says_why_not(kernelci: KernelCI) -> None:
    written = kcidb_of(kernelci.kcidb)
    assert written == kcidb_of(f"{kernelci.kcidb}/submit")
    assert written.url == f"{kernelci.url}/kcidb/submit"
    assert KCIDB_TOKEN not in repr(written)
    document = '{"version": {"major": 5, "minor": 3}}'
    assert written.submit(document) == "a1b2c3"
    assert kernelci.sent == [json.loads(document)]
    with pytest.raises(KernelCIError, match=r"refuses with HTTP 401: .*InvalidToken"):
        Kcidb(written.url, "wrong").submit(document)
    with pytest.raises(ConfigError):
        kcidb_of("https://user:password@host")


def test_a_server_that_drips_is_left_at_the_limit_and_one_that_breaks_off_is_noticed(
    kernelci: KernelCI, tmp_path: Path
) -> None:
    (tmp_path / "zImage").write_bytes(b"zImage")
    address = kernelci.serves(tmp_path / "zImage")
    kernelci.drips.add("/storage/zImage")
    begun = time.monotonic()
    with pytest.raises(KernelCIError, match=r"took longer than 0\.5 s"):
        download(address, tmp_path / "got", "it", most_bytes=1 << 20, sha256=None, limit_s=0.5)
    assert time.monotonic() - begun < 30
    kernelci.drips.clear()
    kernelci.cut.add("/storage/zImage")
    with pytest.raises(KernelCIError, match="broke off") as caught:
        download(address, tmp_path / "got", "it", most_bytes=1 << 20, sha256=None)
    assert caught.value.transient


def test_a_redirect_is_followed_a_few_times_and_never_by_a_change(kernelci: KernelCI) -> None:
    kernelci.files["/storage/a"] = b'{"a": 1}'
    other = kernelci.url.replace("127.0.0.1", "localhost")
    kernelci.moved = {"/x": "/storage/a", "/y": f"{other}/storage/a", "/z": "/z", "/f": "ftp://x/a", "/v": "https://[x"}
    assert asked("GET", f"{kernelci.url}/x", "it", token=TOKEN) == {"a": 1}
    assert kernelci.authorized[-1] == ("/storage/a", TOKEN)
    assert asked("GET", f"{kernelci.url}/y", "it", token=TOKEN) == {"a": 1}
    assert kernelci.authorized[-1] == ("/storage/a", "")
    before = len(kernelci.authorized)
    with pytest.raises(KernelCIError, match="more than 5 other addresses"):
        asked("GET", f"{kernelci.url}/z", "it")
    assert len(kernelci.authorized) == before + 6
    for path in ("/f", "/v"):
        with pytest.raises(KernelCIError):
            asked("GET", f"{kernelci.url}{path}", "it")
    with pytest.raises(KernelCIError, match="refuses with HTTP 302"):
        asked("PUT", f"{kernelci.url}/x", "it", token=TOKEN, document={})


@pytest.mark.parametrize(("status", "transient"), [(400, False), (408, True), (429, True), (503, True)])
def test_refusals_that_pass_by_themselves(kernelci: KernelCI, status: int, transient: bool) -> None:
    kernelci.faults["/x"] = status
    with pytest.raises(KernelCIError) as caught:
        asked("GET", f"{kernelci.url}/x", "it")
    assert caught.value.transient is transient


def test_what_no_parser_can_read_is_an_error_of_ours(kernelci: KernelCI) -> None:
    assert not is_address("https://[x/a.json")
    kernelci.files["/storage/deep"] = b"[" * 100_000
    with pytest.raises(KernelCIError, match="does not answer in JSON"):
        asked("GET", f"{kernelci.url}/storage/deep", "it")
