"""Reads the card model `labgrid/virtual/NAME.toml` that an environment file names."""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.host.toml_lines import parse_toml, wrong_value
from fsjoule.model import CardModel

_ADAPTER: Final = TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(CardModel))


def read_card_model(name: str) -> CardModel:
    """The card model of that name. Raises ConfigError with the file and the wrong key."""
    file = project_dir() / "labgrid" / "virtual" / f"{name}.toml"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"there is no card model {name!r}: {error}", hint="emmc.toml is one") from error
    try:
        return _ADAPTER.validate_python(parse_toml(text, file))
    except ValidationError as error:
        raise wrong_value(error, text, file, hint="emmc.toml has all keys") from error
