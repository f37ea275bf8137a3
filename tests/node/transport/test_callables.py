"""Tests of node/transport/callables.py: names that an application registers."""

import re
from collections.abc import Callable

import pytest

from parley import Node
from parley._node.errors import ConfigError
from parley._node.handlers.registry import Namespace, on_event
from tests.node.network import new_node
from tests.sweep import sweep

SURROGATES = ["\ud800", "a\udfff", "file-\udc80.txt"]


async def handler(_: object) -> None: ...


class Events(Namespace):
    """A namespace with one handler."""

    @on_event("x")
    async def x(self, _: object) -> None: ...


def namespace(name: str) -> Namespace:
    events = Events()
    type(events).name = name
    return events


OFFERS: dict[str, Callable[[Node, str], object]] = {
    "call": lambda node, name: node.on_call(name)(handler),
    "stream": lambda node, name: node.on_stream(name)(handler),
    "event": lambda node, name: node.on(name)(handler),
    "namespace": lambda node, name: node.on("x", namespace=name)(handler),
    "handlers of a namespace": lambda node, name: node.add_namespace(namespace(name)),
    "method": lambda _, name: on_event(name)(handler),
    "subscriptions": lambda node, name: node.on_subscribe(name)(handler),
    "topic": lambda node, name: node.topic(name),
}


@sweep("offer", OFFERS.values(), ids=OFFERS)
@sweep("name", SURROGATES, ids=ascii)
def test_a_name_that_cannot_be_encoded_is_refused(
    offer: Callable[[Node, str], object], name: str
) -> None:
    expected = (
        rf"^cannot use {re.escape(ascii(name))} as the name of a \w+: it has a lone surrogate"
    )
    with pytest.raises(ConfigError, match=expected):
        offer(new_node(), name)


def test_a_long_name_is_shortened_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        new_node().topic("a" * 100_000 + "\ud800")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", ["", "\U0001f600", "a\nb", "\ue000", "x" * 5_000])
def test_other_text_is_a_name(name: str) -> None:
    assert new_node().topic(name).name == name
