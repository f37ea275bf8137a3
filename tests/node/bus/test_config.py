"""The settings of a bus."""

from typing import Any

import pytest

from parley._node.bus.config import RANGES, BusConfig
from parley._node.bus.redis.format import LIGHTBUS, RedisFormat
from parley._node.errors import ConfigError


@pytest.mark.parametrize("name", RANGES)
def test_every_number_has_its_range(name: str) -> None:
    least = RANGES[name].least
    for value in (least - 1, float("nan"), float("inf"), *([least] if RANGES[name].above else [])):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=name):
            BusConfig(**settings)


def test_no_number_is_without_a_range() -> None:
    config = BusConfig()
    numbers = {
        name
        for name in BusConfig.__slots__
        if isinstance(getattr(config, name), int | float) and name != "keep_unread"
    }
    assert numbers <= RANGES.keys()


@pytest.mark.parametrize("name", ["service", "consumer"])
def test_words_are_words(name: str) -> None:
    settings: dict[str, Any] = {name: "two words"}
    with pytest.raises(ConfigError, match=name):
        BusConfig(**settings)


def test_groups_are_named_after_the_service() -> None:
    assert BusConfig(service="shop").group_name("mailer") == "shop-mailer"
    assert BusConfig().group_name("mailer") == "mailer"


def test_the_format_of_an_api() -> None:
    own = RedisFormat(suffix="!")
    config = BusConfig(formats={"auth": own, "*": LIGHTBUS})
    assert (config.format_of("auth"), config.format_of("shop")) == (own, LIGHTBUS)
    assert BusConfig().format_of("auth") == RedisFormat()
