"""Which layer of the program a module belongs to.

The longest prefix decides, so that a module that is added or moved counts for its package
without an entry of its own.
"""

LAYERS: dict[str, str] = {
    "lbm": "LBM: encode, decode",
    "crypto": "keys and key schedule",
    "crypto.ciphers": "AEAD: encrypt, decrypt",
    "crypto.streamkeys": "AEAD: encrypt, decrypt",
    "crypto.hashing": "hash chain",
    "crypto.chain": "hash chain",
    "crypto.signing": "seals: sign, verify",
    "crypto.identity": "seals: sign, verify",
    "node": "node: calls, topics, handlers",
    "node.messaging": "messaging: requests, notes",
    "node.dialects": "dialects: frames, dialogs, routing",
    "node.gateways": "gateways and their clients",
    "node.protocol": "core: connection, session",
    "node.protocol.event": "events and frames",
    "node.protocol.frames": "events and frames",
    "node.protocol.sealing": "core: sealing",
    "node.protocol.multiplexer": "core: streams, credit",
    "node.protocol.streams": "core: streams, credit",
    "node.protocol.window": "core: streams, credit",
    "node.protocol.outbox": "core: streams, credit",
    "node.transport": "transport, with writing",
    "benchmarks": "the benchmark itself",
    "asyncio": "loop: tasks, polling, reading",
    "anyio": "loop: tasks, polling, reading",
    "trio": "loop: tasks, polling, reading",
    "loop": "loop: tasks, polling, reading",
}


def layer_of(function: str) -> str:
    """The layer of a "module:name"."""
    name = function.partition(":")[0]
    while name not in LAYERS:
        above = name.rpartition(".")[0]
        if not above:
            return "other"
        name = above
    return LAYERS[name]
