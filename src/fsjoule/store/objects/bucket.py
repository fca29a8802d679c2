"""The objects of a bucket below a prefix: read in parts, written, listed and removed, all in limited time.

The store is reached with the variables and files that AWS's own programs read. Keys come from `AWS_ACCESS_KEY_ID` and
`AWS_SECRET_ACCESS_KEY`, or from the profile that `AWS_PROFILE` names in `~/.aws`. Roles of a web identity, a container
or a cloud's machine are obstore's own business. No secret is part of a message or of a `repr`.

Source: https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from configparser import Error as FileFormatError
from configparser import RawConfigParser
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fsjoule.errors import ConfigError, ObjectStoreError, ResultError
from fsjoule.host.extras import need
from fsjoule.host.plaintext import plain_line
from fsjoule.store.objects.address import Address

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 8
MIB: Final = 1 << 20
# S3 takes a larger object in parts of at least this size. A part has `stall_s` to get through.
_PART_BYTES: Final = 5 * MIB
# Objects in one answer of a list, and in one request to remove some.
# Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html
_PAGE: Final = 1000
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,80})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_KEYS: Final = "its keys are wrong or expired: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE"
_RIGHTS: Final = (
    "a policy does not allow it (docs/object-store.md lists the rights of each command), or its keys are wrong"
)
_REGION: Final = "it is in another region: set AWS_REGION"
_HINTS: Final[Mapping[str, str]] = {
    "NoSuchBucket": "make the bucket, or correct its name; is AWS_ENDPOINT_URL that of its server?",
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": _KEYS,
    "InvalidToken": _KEYS,
    "AccessDenied": _RIGHTS,
    "RequestTimeTooSkewed": "the clock of this computer is wrong: timedatectl",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "SlowDown": "it is busy: try again later",
    "QuotaExceeded": "make room there: fsjoule results prune",
    "XMinioStorageFull": "make room there: fsjoule results prune",
}
_REFUSED: Final[Mapping[str, str]] = {
    "301": _REGION,
    "401": _KEYS,
    "403": _RIGHTS,
    "507": "make room there: fsjoule results prune",
}
_UNREACHABLE: Final = "is the network up, and AWS_ENDPOINT_URL its address? Repeat the command: it goes on where it was"

_KEY_NAMES: Final = ("aws_access_key_id", "aws_secret_access_key")
# With one of these, keys come from elsewhere than a file.
_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Profiles that AWS's own programs have to resolve.
_RESOLVED: Final = ("sso_session", "sso_start_url", "role_arn", "credential_process")
_USUAL_REGION: Final = "us-east-1"
_ACCESS_HINT: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (docs/object-store.md)"


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
    # What the two files of AWS's programs say of a profile; the file of credentials comes first.
    name = profile or "default"
    home = Path(variables.get("HOME") or Path.home()) / ".aws"
    config = _section(Path(variables.get("AWS_CONFIG_FILE") or home / "config"), name, f"profile {name}")
    settings = config | _section(Path(variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name)
    if profile and not settings:
        raise ConfigError(f"AWS_PROFILE: there is no profile {profile!r} in ~/.aws", hint=_ACCESS_HINT)
    endpoint = _first(variables, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or settings.get("endpoint_url", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"AWS_ENDPOINT_URL={endpoint!r} is not a URL", hint="for example https://minio.lab:9000")
    region = _first(variables, "AWS_REGION", "AWS_DEFAULT_REGION") or settings.get("region", "") or _USUAL_REGION
    bundle = _first(variables, "AWS_CA_BUNDLE") or settings.get("ca_bundle", "")
    keys = _keys(variables, settings, profile)
    # Only machines of AWS have a role of their own, which obstore asks for.
    elsewhere = bool(endpoint) or variables.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if not keys and elsewhere and not _first(variables, *_ROLES):
        raise ConfigError("there are no credentials for the object store", hint=_ACCESS_HINT)
    return Access(endpoint.rstrip("/"), region, *keys, certificates=Path(bundle).expanduser() if bundle else None)


def _keys(variables: Mapping[str, str], settings: Mapping[str, str], profile: str) -> tuple[str, ...]:
    """Key id, secret and token; empty if there are none. Variables come before the profile, as with AWS's programs."""
    given = [variables.get(name.upper(), "").strip() for name in _KEY_NAMES]
    if all(given):
        return (*given, variables.get("AWS_SESSION_TOKEN", "").strip())
    if any(given):
        missing = _KEY_NAMES[given.index("")].upper()
        raise ConfigError(f"credentials of the object store: {missing} is not set", hint=_ACCESS_HINT)
    held = [settings.get(name, "") for name in _KEY_NAMES]
    if all(held):
        return (*held, settings.get("aws_session_token", ""))
    if profile or any(name in settings for name in _RESOLVED):
        export = f"eval $(aws configure export-credentials --profile {profile or 'default'} --format env)"
        raise ConfigError(
            f"the profile {profile or 'default'!r} has no keys of its own",
            hint=f"let AWS's program find them: {export}",
        )
    return ()


def _section(path: Path, *names: str) -> dict[str, str]:
    parser = RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint=_ACCESS_HINT) from error
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect, without any answer, and for a whole transfer; and how often a request is tried again."""

    connect_s: float = 10.0
    stall_s: float = 60.0
    whole_s: float = 900.0
    retries: int = 4
    retries_s: float = 120.0


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its key below the prefix, its size, when it was written by the server's clock."""

    key: str
    size_bytes: int
    written: datetime


class Bucket:
    """The objects below an address's prefix. All methods raise ObjectStoreError if the server fails or refuses."""

    def __init__(self, address: Address, access: Access, limits: Limits = Limits()) -> None:
        self.address = address
        self.place = access.endpoint or f"AWS, region {access.region}"
        self._store = _opened(address, access, limits)

    def part(self, key: str, start: int, length: int) -> bytes:
        """The bytes of an object from `start` on. Raises ResultError if there is no such object."""
        import obstore  # noqa: PLC0415 - an extra of fsjoule

        with self._told(f"read {key}"):
            try:
                part = interruptible(lambda: obstore.get_range(self._store, key, start=start, length=length))
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise  # an absent object is an answer, an absent bucket is none
                raise ResultError("it is gone", hint="fsjoule results list shows what is there") from None
        return bytes(part)

    def put(self, key: str, file: Path) -> None:
        """Write an object, or replace it, by the content of a file. It is there when all of it is."""
        import obstore  # noqa: PLC0415 - an extra of fsjoule

        with self._told(f"write {key}"):
            large = file.stat().st_size > _PART_BYTES
            interruptible(lambda: obstore.put(self._store, key, file, chunk_size=_PART_BYTES, use_multipart=large))

    def list(self, below: str) -> Iterator[StoredObject]:
        """All objects whose keys begin with the folder `below`, which has no slash at its end."""
        import obstore  # noqa: PLC0415 - an extra of fsjoule

        with self._told(f"list {below}/"):
            portions = obstore.list(self._store, below, chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType]
            while portion := interruptible(lambda: next(portions, ())):
                yield from (StoredObject(meta["path"], meta["size"], meta["last_modified"]) for meta in portion)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; absent ones are removed already."""
        import obstore  # noqa: PLC0415 - an extra of fsjoule

        left = iter(keys)
        while portion := list(islice(left, _PAGE)):
            with self._told(f"remove {portion[0]}"):
                interruptible(partial(obstore.delete, self._store, portion))

    def named(self, key: str) -> str:
        """An object for messages."""
        return plain_line(f"s3://{self.address.bucket}/{self.address.prefix}{key}")

    @contextmanager
    def _told(self, doing: str) -> Generator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra of fsjoule

        try:
            yield
        except (BaseError, OSError) as error:
            raise self._error(doing, error) from None  # its text has the request, with the id of the keys

    def _error(self, doing: str, error: Exception) -> ObjectStoreError:
        code, text = _code(error), str(error)
        where = f"bucket {self.address.bucket!r} at {self.place}"
        if "169.254.169.254" in text:
            return ObjectStoreError(f"{where}: there are no credentials", hint=_KEYS.partition(": ")[2])
        if code:
            hint = _HINTS.get(code) or _REFUSED.get(code)
            what = "there is no such bucket" if code == "NoSuchBucket" else f"refused to {doing}: {code}"
            return ObjectStoreError(f"{where}: {what}", hint=hint or _UNREACHABLE)
        slow = "timed out" in text or "TimedOut" in text or "Timeout" in text
        return ObjectStoreError(
            f"{where} {'does not answer' if slow else 'cannot be reached'} ({doing})", hint=_UNREACHABLE
        )


def open_bucket(address: Address, variables: Mapping[str, str] = os.environ) -> Bucket:
    """The objects at an address. Raises ConfigError without credentials or without obstore."""
    return Bucket(address, access_of(variables))


def _opened(address: Address, access: Access, limits: Limits) -> S3Store:
    need("s3", "obstore")
    from obstore.store import S3Store  # noqa: PLC0415 - an extra of fsjoule

    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=limits.connect_s),
        "read_timeout": timedelta(seconds=limits.stall_s),
        "timeout": timedelta(seconds=limits.whole_s),
        "allow_http": access.endpoint.startswith("http://"),
        "user_agent": "fsjoule",
    }
    if access.certificates is not None:
        try:
            client["root_certificate"] = access.certificates.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"AWS_CA_BUNDLE: {access.certificates} cannot be read: {error.strerror}",
                hint="name the file with the certificates of the server's authority, or unset AWS_CA_BUNDLE",
            ) from error
    retry: RetryConfig = {
        "max_retries": limits.retries,
        "retry_timeout": timedelta(seconds=limits.retries_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    keys: dict[str, Any] = {"access_key_id": access.key_id, "secret_access_key": access.secret} if access.key_id else {}
    if access.token:
        keys["session_token"] = access.token
    if access.endpoint:
        keys["endpoint"] = access.endpoint
    return S3Store(
        address.bucket,
        prefix=address.prefix.rstrip("/") or None,
        region=access.region,
        client_options=client,
        retry_config=retry,
        **keys,
    )


def _code(error: Exception) -> str:
    """S3's code for an error, or else HTTP's status; empty if there was no answer."""
    match = _CODE.search(str(error)) or _STATUS.search(str(error))
    return "" if match is None else match[1]


def in_parallel(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`call` for each item, some at once; results in order. After the first error no further call begins."""
    work = _Work(call, list(items))
    if work.left:
        work.run(min(AT_ONCE, work.left))
    return work.results()


def interruptible(call: Callable[[], R]) -> R:
    """`call` in another thread, unless this is one: only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    return in_parallel(lambda _: call(), (None,))[0]


class _Work(Generic[T, R]):
    """Requests in threads of their own, so that Ctrl-C ends a command also while a server does not answer.

    A request is made by code that hears no signal, and may last as long as its limits. The threads are daemons: they
    end with the program.
    """

    def __init__(self, call: Callable[[T], R], items: list[T]) -> None:
        self._call = call
        self._waiting: SimpleQueue[tuple[int, T]] = SimpleQueue()
        for number, item in enumerate(items):
            self._waiting.put((number, item))
        self._done: dict[int, R] = {}
        self._error: BaseException | None = None
        self._stopped = False
        self._running = 0
        self._changing = threading.Condition()
        self.left = len(items)

    def run(self, threads: int) -> None:
        """Return when no thread works any more; after a signal at once."""
        self._running = threads
        try:
            for _ in range(threads):
                threading.Thread(target=self._work, name="objects", daemon=True).start()
            with self._changing:
                while self._running:
                    self._changing.wait()
        finally:
            self._stopped = True

    def results(self) -> list[R]:
        if self._error is not None:
            raise self._error
        return [self._done[number] for number in sorted(self._done)]

    def _work(self) -> None:
        try:
            while not self._stopped:
                number, item = self._waiting.get_nowait()
                self._done[number] = self._call(item)
        except Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was given
            self._stopped, self._error = True, self._error or error
        finally:
            with self._changing:
                self._running -= 1
                self._changing.notify()
