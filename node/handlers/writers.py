"""Writers: peers that publish a topic of ours, by calls of `publish:NAME` (section 19).

The topic has one publisher all the same, and so one order of its notes.
"""

from typing import Any

from parley._lbm.errors import LbmEncodeError
from parley._node.errors import CallRefused, MalformedDataError
from parley._node.handlers.registry import Handlers
from parley._node.handlers.rules import Allow
from parley._node.handlers.topic import Topic
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.messaging.topics import PUBLISH
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.remote.requests import Call
from parley._node.typed.data_type import DataType


def take_notes(
    topic: Topic[Any], kind: DataType[Any] | None, writers: Allow, handlers: Handlers
) -> None:
    """Publish what those send whom `writers` permits; data that is not of `kind` is refused.

    One note is published at a time and writers take turns, so that each waits for slow subscribers
    as a program does which awaits `publish`.

    Raises:
        ConfigError: `writers` holds something other than node ids and roles.
    """

    async def write(call: Call[Any]) -> int | None:
        if DROPPED_HEADER in call.headers:
            # It would tell subscribers of losses that there were not.
            raise CallRefused(ResultCode.MALFORMED, f"{DROPPED_HEADER} is the publisher's header")
        try:
            note = call.data if kind is None else kind.read(call.data)
            return await topic.publish(note, call.headers or None)
        except (MalformedDataError, LbmEncodeError) as error:
            raise CallRefused(ResultCode.MALFORMED, str(error)) from error
        except PayloadTooLargeError as error:
            raise CallRefused(ResultCode.PAYLOAD_TOO_LARGE, str(error)) from error

    handlers.calls.add(PUBLISH + topic.name, write, allow=writers, concurrency=1, once=True)
