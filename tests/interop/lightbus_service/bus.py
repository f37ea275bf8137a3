"""A service as in Lightbus's documentation, run by `lightbus run`, with commands for tests.

It reads one JSON object per line from standard input, and writes events to standard output. It
doesn't depend on Parley or on the form of events in Redis. It needs Python 3.9, because Lightbus
1.1.2 doesn't work on later versions; lightbus_peer.py describes its start and its lines.
"""

import asyncio
import json
import os
import sys
from typing import Any, Optional

import lightbus
from lightbus import Api, Event, Parameter
from lightbus.message import EventMessage

Line = dict[str, Any]


class AuthApi(Api):
    """The data about users."""

    user_registered = Event(parameters=[Parameter("username", str)])
    profile_changed = Event(
        parameters=[
            Parameter("username", str),
            Parameter("age", int),
            Parameter("score", float),
            Parameter("active", bool),
            Parameter("nickname", Optional[str]),  # noqa: UP045 - Python 3.9
            Parameter("tags", list[str]),
            Parameter("address", dict),
        ]
    )

    class Meta:
        """Its name and version on the bus."""

        name = "auth"
        version = 2


bus = lightbus.create()
bus.client.register_api(AuthApi())
# Whether handlers may finish.
_going_on = asyncio.Event()
_going_on.set()


def tell(**line: Any) -> None:
    """Write one line about an event."""
    print(json.dumps(line), flush=True)


async def handle(event: EventMessage, **fields: Any) -> None:
    """Both listeners: report the event, and finish when permitted."""
    tell(
        began={
            "name": event.canonical_name,
            "id": event.id,
            "native_id": event.native_id,
            "version": event.version,
            "data": fields,
        }
    )
    await _going_on.wait()


@bus.client.after_event_execution()
async def tell_acknowledged(event_message: EventMessage, **_: Any) -> None:
    """Lightbus calls this when it has acknowledged an event."""
    tell(acknowledged=event_message.native_id)


@bus.client.on_start()
async def start(**_: Any) -> None:
    """Start the listeners and the reader of commands before the worker starts."""
    listeners = json.loads(os.environ["LISTENERS"])
    for event, listener in listeners.items():
        getattr(bus.auth, event).listen(handle, listener_name=listener)
    bus.client.add_background_task(obey())


async def obey() -> None:
    """Do what each line asks for; the end of the input is the worker's end."""
    tell(ready=os.getpid())
    lines = asyncio.StreamReader()
    await asyncio.get_event_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async for line in lines:
        await do(json.loads(line))
    bus.client.request_shutdown()


async def do(asked: Line) -> None:
    """One of `{"fire": EVENT, "data": [{...}, ...]}`, `{"hold": true or false}`."""
    if "hold" in asked:
        if asked["hold"]:
            _going_on.clear()
        else:
            _going_on.set()
        tell(held=asked["hold"])
        return
    fired = []
    for data in asked["data"]:
        try:
            message = await getattr(bus.auth, asked["fire"]).fire_async(**data)
        except Exception as error:
            fired.append({"error": str(error)})
        else:
            fired.append({"id": message.id, "native_id": message.native_id})
    tell(fired=fired)
