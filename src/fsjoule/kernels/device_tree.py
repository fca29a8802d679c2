"""A recipe's changes to the kernel's device tree: properties, then overlays."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.kernels.recipe import MarkGpio, Recipe, recipes_folder

_TIMEOUT_S: Final = 10.0
_LEDS_NODE: Final = "/fsjoule-leds"


def overlay_sources(recipe: Recipe) -> dict[str, str]:
    """The text of the recipe's overlays, by file. Raises ConfigError if one cannot be read."""
    try:
        return {name: (recipes_folder() / name).read_text(encoding="utf-8") for name in recipe.boot.overlays}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{recipe.file}: an overlay cannot be read: {error}", hint="boot.overlays are files below images/"
        ) from error


def change_device_tree(file: Path, recipe: Recipe) -> None:
    """Change a device tree in place. Raises ConfigError for a node that it does not have, or a wrong overlay."""
    for node, properties in recipe.boot.device_tree.items():
        try:
            present = process.run(["fdtget", "-p", file, node], timeout_s=_TIMEOUT_S).stdout.decode().split()
        except HostError as error:
            raise ConfigError(
                f"the kernel's device tree {recipe.boot.dtb} has no node {node!r}, which the recipe changes",
                hint=f"correct [boot.device_tree] in {recipe.file}, or use another device tree",
            ) from error
        for name, value in properties.items():
            if value is not False:
                kind = "s" if isinstance(value, str) else "u"
                process.run(["fdtput", "-t", kind, file, node, name, str(value)], timeout_s=_TIMEOUT_S)
            elif name in present:
                process.run(["fdtput", "-d", file, node, name], timeout_s=_TIMEOUT_S)
    for name, source in overlay_sources(recipe).items():
        _apply(file, name, source, recipe)
    if recipe.boot.mark_gpio is not None:
        _add_mark_led(file, recipe, recipe.boot.mark_gpio)


def _add_mark_led(file: Path, recipe: Recipe, pin: MarkGpio) -> None:
    """A node for the kernel's `leds-gpio`, which holds the pin: low at first."""
    try:
        result = process.run(["fdtget", "-t", "u", file, pin.controller, "phandle"], timeout_s=_TIMEOUT_S)
    except HostError as error:
        raise ConfigError(
            f"the kernel's device tree {recipe.boot.dtb} has no GPIO controller {pin.controller!r} that can be used",
            hint=f"correct boot.mark_gpio in {recipe.file}: the path of a node with gpio-controller",
        ) from error
    led = f"{_LEDS_NODE}/{Path(recipe.boot.mark_device).parent.name}"
    process.run(["fdtput", "-cp", file, led], timeout_s=_TIMEOUT_S)
    for node, name, kind, *values in (
        (_LEDS_NODE, "compatible", "s", "gpio-leds"),
        (led, "gpios", "u", result.stdout.decode().strip(), *map(str, pin.cells)),
        (led, "default-state", "s", "off"),
    ):
        process.run(["fdtput", "-t", kind, file, node, name, *values], timeout_s=_TIMEOUT_S)


def _apply(file: Path, name: str, source: str, recipe: Recipe) -> None:
    overlay = file.with_name(f"{Path(name).stem}.dtbo")
    try:
        result = process.run(
            ["dtc", "-q", "-I", "dts", "-O", "dtb", "-@"], input_bytes=source.encode(), timeout_s=_TIMEOUT_S
        )
        overlay.write_bytes(result.stdout)
        process.run(["fdtoverlay", "-i", file, "-o", file, overlay], timeout_s=_TIMEOUT_S)
    except HostError as error:
        raise ConfigError(
            f"the overlay images/{name} does not fit the device tree {recipe.boot.dtb}: {error.what}",
            hint=f"correct it, or boot.overlays in {recipe.file}",
        ) from error
    finally:
        overlay.unlink(missing_ok=True)
