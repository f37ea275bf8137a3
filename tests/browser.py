"""A Chromium without a window, for tests of pages: Debian's, with its driver."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from selenium.webdriver import ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

NEEDS_BROWSER: Final = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="there is no chromedriver"),
]
_ARGUMENTS: Final = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage")


@contextmanager
def chromium(profile: Path) -> Iterator[WebDriver]:
    """A browser with its profile in a directory; what its pages log can be read."""
    options = ChromeOptions()
    for argument in (*_ARGUMENTS, f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = WebDriver(options, Service(executable_path=shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
