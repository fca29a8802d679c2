"""How an object store is reached, from the variables and files that AWS's own programs read.

Keys come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or from the profile that `AWS_PROFILE` names in
`~/.aws`. Roles of a web identity, a container or a cloud's machine are obstore's own business. No secret is part of a
message or of a `repr`.

Source: https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html
"""

from __future__ import annotations

from collections.abc import Mapping
from configparser import Error as FileFormatError
from configparser import RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError

_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")
# With one of these, keys come from elsewhere than a file.
_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Profiles that AWS's own programs have to resolve.
_RESOLVED: Final = ("sso_session", "sso_start_url", "role_arn", "credential_process")
_REGION: Final = "us-east-1"
_HINT: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (docs/object-store.md)"


@dataclass(frozen=True, slots=True)
class Access:
    """`endpoint` is empty for AWS itself. Without keys obstore asks the role of this machine."""

    endpoint: str
    region: str
    key_id: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificates: Path | None = None


def access_of(variables: Mapping[str, str]) -> Access:
    """The access that the environment describes. Raises ConfigError if it has none, or an unusable one."""
    profile = variables.get("AWS_PROFILE", "").strip()
    settings = _profile(variables, profile or "default")
    if profile and not settings:
        raise ConfigError(f"AWS_PROFILE: there is no profile {profile!r} in ~/.aws", hint=_HINT)
    endpoint = _first(variables, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or settings.get("endpoint_url", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"AWS_ENDPOINT_URL={endpoint!r} is not a URL", hint="for example https://minio.lab:9000")
    region = _first(variables, "AWS_REGION", "AWS_DEFAULT_REGION") or settings.get("region", "") or _REGION
    bundle = _first(variables, "AWS_CA_BUNDLE") or settings.get("ca_bundle", "")
    keys = _keys(variables, settings, profile)
    # Only machines of AWS have a role of their own, which obstore asks for.
    elsewhere = bool(endpoint) or variables.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if not keys and elsewhere and not _first(variables, *_ROLES):
        raise ConfigError("there are no credentials for the object store", hint=_HINT)
    return Access(endpoint.rstrip("/"), region, *keys, certificates=Path(bundle).expanduser() if bundle else None)


def _keys(variables: Mapping[str, str], settings: Mapping[str, str], profile: str) -> tuple[str, ...]:
    """Key id, secret and token; empty if there are none. Variables come before the profile, as with AWS's programs."""
    given = [variables.get(name.upper(), "").strip() for name in _KEYS]
    if all(given):
        return (*given, variables.get("AWS_SESSION_TOKEN", "").strip())
    if any(given):
        missing = _KEYS[given.index("")].upper()
        raise ConfigError(f"credentials of the object store: {missing} is not set", hint=_HINT)
    held = [settings.get(name, "") for name in _KEYS]
    if all(held):
        return (*held, settings.get("aws_session_token", ""))
    if profile or any(name in settings for name in _RESOLVED):
        export = f"eval $(aws configure export-credentials --profile {profile or 'default'} --format env)"
        raise ConfigError(
            f"the profile {profile or 'default'!r} has no keys of its own",
            hint=f"let AWS's program find them: {export}",
        )
    return ()


def _profile(variables: Mapping[str, str], name: str) -> dict[str, str]:
    """What the two files of AWS's programs say of a profile; the file of credentials comes first."""
    home = Path(variables.get("HOME") or Path.home()) / ".aws"
    config = _section(Path(variables.get("AWS_CONFIG_FILE") or home / "config"), name, f"profile {name}")
    return config | _section(Path(variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name)


def _section(path: Path, *names: str) -> dict[str, str]:
    parser = RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from error
    except (FileFormatError, UnicodeDecodeError) as error:
        # Without the error's own text: it quotes the line, which may be a secret.
        raise ConfigError(f"{path} is not a file of AWS's programs", hint="see: aws configure") from error
    settings: dict[str, str] = {}
    for name in names:
        if parser.has_section(name):
            settings |= {key: value.strip() for key, value in parser.items(name)}
    return settings


def _first(variables: Mapping[str, str], *names: str) -> str:
    return next((value for name in names if (value := variables.get(name, "").strip())), "")
