"""Clients that know each other by a UUID talk through an event relay; none of them needs a
node. The relay tells a sender whose target is not there, and drops clients that do not read.

Run it with `uv run python examples/11_event_relay.py`.
"""

import logging
import socket
import struct
from uuid import UUID

import anyio
from anyio import to_thread

from parley.dialects import DialectLimits, Relay, RelayClient, RelayFault

SENSOR, DISPLAY, OLD = (UUID(int=number) for number in (0x5E, 0xD1, 0x01D))


def old_program(host: str, port: int) -> None:
    """A client that has nothing of ours: it says its UUID, and sends to all."""
    with socket.create_connection((host, port)) as sock:
        sock.sendall(OLD.bytes)
        payload = b"from a program of old"
        length = struct.pack(">I", 32 + len(payload))  # both UUIDs and the payload
        sock.sendall(length + bytes(16) + OLD.bytes + payload)


def tell(fault: RelayFault) -> None:
    print(f"the relay says: code {fault.code}, {fault.text}")


async def main() -> None:
    logging.getLogger("parley").setLevel(logging.ERROR)  # that it drops a client is a warning
    # More than 64 KiB that wait for a client are too much here, and the client goes.
    async with Relay(limits=DialectLimits(write_buffer=65_536)) as relay:
        address = await relay.listen("tcp://127.0.0.1:0")
        async with (
            RelayClient(address, SENSOR, on_fault=tell) as sensor,
            RelayClient(address, DISPLAY) as display,
        ):
            await relay.until(lambda: len(relay.clients) == 2)

            await sensor.send(DISPLAY, b"21 degrees")
            message = await anext(display)
            print(
                f"direct: {message.payload.decode()}, from the sensor: {message.sender == SENSOR}"
            )

            host, port = address.removeprefix("tcp://").split(":")
            await to_thread.run_sync(old_program, host, int(port))
            for client in (sensor, display):
                message = await anext(client)
                print(f"broadcast: {message.payload.decode()}")

            await relay.until(lambda: OLD not in relay.clients)
            await sensor.send(OLD, b"are you still there?")
            await sensor.send(SENSOR, b"after it")  # to oneself: what came before was seen
            await anext(sensor)

            with socket.create_connection((host, int(port))) as lazy:
                lazy.sendall(OLD.bytes)  # and never reads
                await relay.until(lambda: OLD in relay.clients)
                while OLD in relay.clients:
                    await sensor.send(OLD, bytes(60_000))
                    await sensor.send(DISPLAY, b"on time")
                    assert (await anext(display)).payload == b"on time"
        print(f"dropped, since they did not read: {relay.dropped}")


if __name__ == "__main__":
    anyio.run(main)
