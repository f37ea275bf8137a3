r"""Bridge three protocols: an event relay, a node's topic and SimProto.

    relay client --- Relay --- Bridge --- topic "news" of a node --- native peer
                                                     \\--- SimProtoGateway --- SimProto client

Messages at the relay become notes of the topic, which native peers and SimProto clients read. Notes
that these publish are sent to the relay's clients.

Run it with `uv run python examples/12_bridge.py`.
"""

import anyio

from parley import Call, Identity, Node
from parley.dialects import Bridge, Relay, RelayClient, SimProtoClient, SimProtoGateway


async def main() -> None:
    async with (
        Node(Identity.create()) as node,
        Node(Identity.create()) as reader,
        SimProtoGateway(node) as gateway,
        Relay() as relay,
    ):
        news = node.topic("news")

        @node.on_call("news")
        async def publish(call: Call) -> None:
            await news.publish(call.data)

        # Open the bridge before the relay listens, so that no client can take the node's UUID
        # first.
        async with Bridge(relay, news, node.node_id.uuid):
            place = await relay.listen("tcp://127.0.0.1:0")
            peer = await reader.connect(await node.listen("tcp://127.0.0.1:0"))
            async with (
                RelayClient(place) as sensor,
                SimProtoClient(await gateway.listen("tcp://127.0.0.1:0")) as simproto,
                peer.subscribe("news") as native_notes,
                simproto.subscribe("news") as simproto_notes,
            ):
                await relay.until(lambda: sensor.uuid in relay.clients)
                await sensor.broadcast(b"it rains")
                print("native:", await anext(native_notes))
                print(
                    "  from the sensor:", native_notes.headers == {"relay.sender": str(sensor.uuid)}
                )
                print("SimProto:", await anext(simproto_notes))

                await simproto.call("news", b"the sun is out")
                message = await anext(sensor)
                print("relay:", message.payload)
                print("  from the node:", message.sender == node.node_id.uuid)

                await peer.call("news", {"degrees": 21})
                print("relay, as CBOR:", (await anext(sensor)).payload.hex())


if __name__ == "__main__":
    anyio.run(main)
