"""Exchange messages between clients of an event relay, which address each other by UUID.

The clients don't need a node. The relay reports an unknown target to the sender, and disconnects
clients that don't read.

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
    """A client without Parley: it sends its UUID and then broadcasts a message."""
    with socket.create_connection((host, port)) as sock:
        sock.sendall(OLD.bytes)
        payload = b"from an old program"
        length = struct.pack(">I", 32 + len(payload))  # two UUIDs and the payload
        sock.sendall(length + bytes(16) + OLD.bytes + payload)


def report(fault: RelayFault) -> None:
    print(f"error from the relay: code {fault.code}, {fault.text}")


async def main() -> None:
    logging.getLogger("parley").setLevel(
        logging.ERROR
    )  # don't show the warning about the disconnected client
    # The relay disconnects a client for which more than 64 KiB are waiting.
    async with Relay(limits=DialectLimits(write_buffer=65_536)) as relay:
        address = await relay.listen("tcp://127.0.0.1:0")
        async with (
            RelayClient(address, SENSOR, on_fault=report) as sensor,
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
            # A message to itself: when it arrives, the relay has handled all earlier messages.
            await sensor.send(SENSOR, b"marker")
            await anext(sensor)

            with socket.create_connection((host, int(port))) as lazy:
                lazy.sendall(OLD.bytes)  # this client never reads
                await relay.until(lambda: OLD in relay.clients)
                while OLD in relay.clients:
                    await sensor.send(OLD, bytes(60_000))
                    await sensor.send(DISPLAY, b"on time")
                    assert (await anext(display)).payload == b"on time"
        print(f"disconnected because they did not read: {relay.dropped}")


if __name__ == "__main__":
    anyio.run(main)
