"""Requests to servers of others: what goes with them, and where to.

test_kernelci.py and test_lava_pull.py have servers that redirect, drip and break off.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelci_server import kernelci_server

from fsjoule.errors import ConfigError
from fsjoule.host.web import AnswerError, answered

MOST = 1 << 20


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the computer that tests."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def get(url: str, authorization: str = "") -> bytes:
    with answered("GET", url, most_bytes=MOST, limit_s=60, authorization=authorization) as answer:
        assert answer.status == 200
        return answer.content()


def test_a_password_of_netrc_neither_replaces_a_token_nor_goes_where_none_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login me password another\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with kernelci_server() as server:
        server.files["/storage/a"] = b"a"
        assert get(f"{server.url}/storage/a", "Bearer mine") == b"a"
        assert get(f"{server.url}/storage/a") == b"a"
    assert [token for _, token in server.authorized] == ["mine", ""]


def test_a_labs_proxy_is_asked_but_for_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernelci_server() as proxy, kernelci_server() as server:
        server.files["/storage/a"] = b"near"
        proxy.files["/storage/a"] = b"far"
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert get("http://kernelci.invalid/storage/a") == b"far"
        assert get(f"{server.url}/storage/a") == b"near"


def test_certificates_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"REQUESTS_CA_BUNDLE: there is no .*none\.pem"):
        get("https://127.0.0.1:9/x")


def test_an_answer_that_is_too_large_is_left() -> None:
    with kernelci_server() as server:
        server.files["/storage/a"] = b"a" * (MOST + 1)
        with pytest.raises(AnswerError, match="sends more than 1 MiB") as caught:
            get(f"{server.url}/storage/a")
    assert not caught.value.transient
