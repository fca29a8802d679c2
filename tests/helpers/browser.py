"""Debian's Chromium without a window, driven through its own driver; nothing is fetched from anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

T = TypeVar("T")

# Kept after the tests, for whoever wants to look.
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DESK = (1280, 900)
PHONE = (390, 844)
# Each size and each scheme once; a size in the other scheme is for the night.
MODES = (
    pytest.param(DESK, False, id="desk-light"),
    pytest.param(PHONE, True, id="phone-dark"),
    pytest.param(DESK, True, id="desk-dark", marks=pytest.mark.slow),
    pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.slow),
)
_TIMEOUT_S = 60.0
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)

# The contrast of each text with what is behind it, as WCAG 2 reckons it.
CONTRASTS = """
const scale = (text) => (text.startsWith("color(srgb") ? 255 : 1);  // what color-mix gives
const rgb = (text) => (text.match(/[\\d.]+/g) || []).map((number, n) => Number(number) * (n < 3 ? scale(text) : 1));
const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const behind = (e) => {
  for (let at = e; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0.99) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')]
  .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .filter((e) => !['SCRIPT', 'STYLE', 'OPTION', 'NOSCRIPT'].includes(e.tagName))
  .map((e) => {
    const style = getComputedStyle(e);
    const [a, b] = [light(rgb(e.namespaceURI.endsWith('svg') ? style.fill : style.color)), light(behind(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
"""


class Browser:
    """One tab. Every error that a page writes to its console, or that loading it causes, is kept."""

    def __init__(self, chrome: Chrome) -> None:
        self.chrome = chrome

    def open(self, address: str, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
        """Open an address anew in a window of that size, for a reader who prefers light or dark pages."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.chrome.get("about:blank")
        self.chrome.get(address)

    def script(self, text: str, *arguments: object) -> Any:
        """What a function body of JavaScript returns in the page."""
        return self.chrome.execute_script(text, *arguments)  # pyright: ignore[reportUnknownMemberType]

    def choose(self, name: str, value: str) -> None:
        """Choose in the box of this id, as its reader does."""
        self.script(
            "const box = document.getElementById(arguments[0]); box.value = arguments[1];"
            "box.dispatchEvent(new Event('change', {bubbles: true}))",
            name,
            value,
        )

    def wait(self, look: Callable[[], T]) -> T:
        """What `look` gives once that is true of it; TimeoutException if it never is."""
        return WebDriverWait(self.chrome, _TIMEOUT_S, poll_frequency=0.2).until(lambda _: look())

    def errors(self) -> list[str]:
        """Errors of the pages since it was last asked."""
        entries: list[dict[str, Any]] = self.chrome.get_log("browser")  # pyright: ignore[reportUnknownMemberType]
        return [str(entry["message"]) for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        file = SCREENSHOTS / f"{name}.png"
        assert self.chrome.save_screenshot(str(file))
        return file


@contextmanager
def browser() -> Generator[Browser]:
    """A browser, until the end of the body."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()
