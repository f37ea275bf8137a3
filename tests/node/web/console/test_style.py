"""The page's colours, light and dark: text has enough contrast with its background."""

import re
from pathlib import Path

import pytest

CSS = Path(__file__).parents[4] / "node/web/console/static/console.css"
# WCAG 2.2, success criterion 1.4.3: 4.5 for text of normal size.
LEAST = 4.5
TEXTS = [
    *((text, behind) for text in ("ink", "dim") for behind in ("ground", "surface", "raised")),
    ("accent", "surface"),
    ("accent", "accent-soft"),
    *((kind, f"{kind}-soft") for kind in ("good", "warn", "bad", "info")),
    ("bad", "surface"),
    ("surface", "bad"),  # The button of a dangerous action.
    ("surface", "ink"),  # Notices.
]


def colours() -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of the light and the dark theme."""
    text = CSS.read_text("utf-8")
    blocks = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{(.*?)\}", text, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks)
    return light, dark


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", colours(), ids=("light", "dark"))
def test_text_stands_out(scheme: dict[str, str]) -> None:
    for text, behind in TEXTS:
        one, other = sorted((luminance(scheme[text]), luminance(scheme[behind])))
        assert (other + 0.05) / (one + 0.05) >= LEAST, (text, behind)


def test_dark_is_the_same_however_it_was_chosen() -> None:
    text = CSS.read_text("utf-8")
    (system,) = re.findall(r":not\(\[data-theme=\"light\"\]\) \{(.*?)\}", text, re.DOTALL)
    assert dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", system)) == colours()[1]
