"""Addresses of runs in an object store, and what the environment says of the way there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.store.objects.address import Address, is_address, parse_address
from fsjoule.store.objects.bucket import access_of

RUN = "20260309T100000Z-virtual-k3v9q2"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a secret"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://lab", Address("lab", "")),
        ("s3://lab/", Address("lab", "")),
        ("s3://lab/boards/fast/", Address("lab", "boards/fast/")),
        (f"s3://lab/{RUN}", Address("lab", "", RUN)),
        (f"s3://lab/boards/{RUN}/", Address("lab", "boards/", RUN)),
        (f"s3://lab/boards/{RUN}/run.json", Address("lab", "boards/", RUN)),
        (Path(f"s3://lab/boards/{RUN}"), Address("lab", "boards/", RUN)),
    ],
)
def test_an_address_is_a_folder_of_runs_or_a_run(text: str | Path, address: Address) -> None:
    assert is_address(text)
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["s3://", "s3://l", "s3://Lab/x", "s3://lab/../x", "s3://lab/a b", "s3://lab/x\x1b[2J"]
)
def test_what_is_no_address_is_refused_on_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_address(text)
    assert "\x1b" not in told.value.what
    assert "s3://BUCKET/PREFIX" in str(told.value)


def test_a_path_is_no_address() -> None:
    assert not is_address("results/s3:/lab")
    assert not is_address(Path("results"))


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    aws = tmp_path / ".aws"
    aws.mkdir()
    (aws / "credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = %d=s\n"
        "[lab]\naws_access_key_id=L\naws_secret_access_key=ls\naws_session_token=lt\n"
    )
    (aws / "config").write_text(
        "[default]\nregion = eu-north-1\n[profile lab]\nregion = eu-west-3\nendpoint_url = https://minio.lab:9000/\n"
        "s3 =\n  addressing_style = path\n[profile sso]\nsso_session = corp\n"
    )
    return {"HOME": str(tmp_path)}


def test_keys_come_from_variables_first(home: dict[str, str]) -> None:
    access = access_of(home | KEYS | {"AWS_SESSION_TOKEN": "t", "AWS_REGION": "eu-west-1", "AWS_PROFILE": "lab"})
    assert (access.key_id, access.secret, access.token, access.region) == ("AKIDEXAMPLE", "a secret", "t", "eu-west-1")


def test_a_profile_has_keys_region_and_endpoint(home: dict[str, str]) -> None:
    access = access_of(home | {"AWS_PROFILE": "lab"})
    assert (access.key_id, access.secret, access.token) == ("L", "ls", "lt")
    assert (access.region, access.endpoint) == ("eu-west-3", "https://minio.lab:9000")


def test_the_default_profile_needs_no_variable(home: dict[str, str]) -> None:
    access = access_of(home)
    assert (access.key_id, access.secret, access.region, access.endpoint) == ("D", "%d=s", "eu-north-1", "")


def test_nothing_secret_is_shown(home: dict[str, str]) -> None:
    shown = repr(access_of(home | KEYS | {"AWS_SESSION_TOKEN": "token"}))
    assert not any(word in shown for word in ("AKIDEXAMPLE", "a secret", "token'"))


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"AWS_PROFILE": "another"}, "there is no profile 'another'"),
        ({"AWS_PROFILE": "sso"}, "aws configure export-credentials --profile sso"),
        ({"AWS_ACCESS_KEY_ID": "x"}, "AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_ENDPOINT_URL": "minio.lab:9000"}, "is not a URL"),
        ({"HOME": "/nowhere", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "no credentials"),
        ({"HOME": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"}, "no credentials"),
    ],
)
def test_what_is_missing_is_told(home: dict[str, str], variables: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError) as told:
        access_of(home | variables)
    assert what in str(told.value)


def test_a_damaged_file_is_named_without_its_lines(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("aws_secret_access_key = a secret\n")
    with pytest.raises(ConfigError) as told:
        access_of({"HOME": str(tmp_path), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")})
    assert "a secret" not in str(told.value)


def test_a_machine_of_aws_has_a_role() -> None:
    assert access_of({"HOME": "/nowhere"}).key_id == ""
