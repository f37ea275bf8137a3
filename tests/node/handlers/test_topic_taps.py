"""Taps of a topic get each published note, except their own."""

import logging
from collections.abc import Mapping

import pytest

from parley import Identity, Node
from parley._lbm.codec import Encodable
from parley._lbm.errors import LbmEncodeError

Told = list[tuple[Encodable, Mapping[str, Encodable] | None]]


async def test_a_tap_is_told_each_note_until_it_is_taken_off(anyio_backend: str) -> None:
    async with Node(Identity.create()) as node:
        topic, told = node.topic("news"), Told()
        untap = topic.tap(lambda data, headers: told.append((data, headers)))
        await topic.publish("one")
        await topic.publish({"n": 2}, {"from": "us"})
        untap()
        untap()  # a second time is fine
        await topic.publish("three")
    assert told == [("one", None), ({"n": 2}, {"from": "us"})]


async def test_a_tap_is_not_told_what_it_brought(anyio_backend: str) -> None:
    async with Node(Identity.create()) as node:
        topic, first, second = node.topic("news"), Told(), Told()

        def tap(data: Encodable, headers: Mapping[str, Encodable] | None) -> None:
            first.append((data, headers))

        topic.tap(tap)
        topic.tap(lambda data, headers: second.append((data, headers)))
        await topic.publish(b"from the first", source=tap)
    assert (first, second) == ([], [(b"from the first", None)])


async def test_what_cannot_be_published_is_told_to_nobody(anyio_backend: str) -> None:
    async with Node(Identity.create()) as node:
        topic, told = node.topic("news"), Told()
        topic.tap(lambda data, headers: told.append((data, headers)))
        with pytest.raises(LbmEncodeError):
            await topic.publish(2**70)
    assert told == []


async def test_a_tap_that_fails_harms_nobody(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node(Identity.create()) as node:
        topic, told = node.topic("news"), Told()

        def broken(data: Encodable, headers: Mapping[str, Encodable] | None) -> None:
            raise ZeroDivisionError

        topic.tap(broken)
        topic.tap(lambda data, headers: told.append((data, headers)))
        with caplog.at_level(logging.CRITICAL + 1, "parley.peer"):
            await topic.publish("note")
    assert told == [("note", None)]
