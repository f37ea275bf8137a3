"""A service as Lightbus's documentation has them, run by `lightbus run`, that can be asked for
things: one JSON object a line on its standard input, and what happens on its standard output.

Nothing here knows of Parley, or of how events look in Redis. Python 3.9, for Lightbus
1.1.2 works on no later one; lightbus_peer.py says how this is started, and what the lines are.
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
    """What is told of users."""

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
    """Write one line of what has happened."""
    print(json.dumps(line), flush=True)


async def handle(event: EventMessage, **fields: Any) -> None:
    """Both listeners: say what came, and finish when that is allowed."""
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
    """Before the worker starts: its listeners, and what it is asked to do."""
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
