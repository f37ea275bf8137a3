"""Write the stored samples with the Parley that is installed: `python make.py DIRECTORY`.

It uses public names only, so that each version can write the samples that later ones must read.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from parley import Call, Identity, Node, NodeConfig, save_identity
from parley.bus import open_bus
from parley.journal import AuditorPrivateKey, Journal, save_auditor_key

CONFIG = NodeConfig(algorithms={"kex": ("x25519",), "hash": ("sha256",)})
NAME = "orders.paid"


async def main(out: Path) -> None:
    """Write all samples."""
    server = Identity.create()
    save_identity(out / "server.key", server)
    await write_journal(out, server)
    await write_bus(out / "bus.db")
    write_home(out, str(server.node_id))
    (out / "parley.toml").write_text(SETTINGS)


async def write_journal(out: Path, identity: Identity) -> None:
    """A run that was closed, with a rekey, and one that a crash left open."""
    auditor = AuditorPrivateKey.create()
    save_auditor_key(out / "auditor.key", auditor)
    live = out / "live"
    for run in ("closed", "crashed"):
        journal = Journal.open(live, auditor.public, fsync="never")
        async with Node(identity, config=CONFIG, journal=journal) as node:
            prices = node.topic("prices", keep=10)

            @node.on_call("double")
            async def double(call: Call) -> object:
                return [call.data, call.data]

            address = await node.listen("tcp://127.0.0.1:0")
            async with Node(Identity.create(), config=CONFIG) as client:
                peer = await client.connect(address)
                assert await peer.call("double", 21) == [21, 21]
                async with peer.subscribe("prices") as notes:
                    for price in range(5):
                        await prices.publish({"eur": price})
                        assert await anext(notes) == {"eur": price}
                await peer.rekey()
                assert await peer.call("double", 4) == [4, 4]
                await journal.sync()
                if run == "crashed":
                    (out / "journal").mkdir()
                    for path in live.glob("*.pjl*"):
                        shutil.copy(path, out / "journal")
    shutil.rmtree(live)


async def write_bus(path: Path) -> None:
    """Five events; of the group `mail` two are acknowledged, one is a dead letter."""
    async with open_bus(f"sqlite:///{path}") as bus:
        for number in range(5):
            await bus.publish(NAME, {"order": number})
        with suppress(LookupError):
            async with bus.consume(NAME, "mail", batch=1, max_attempts=1) as events:
                async for event in events:
                    if event.data["order"] == 2:
                        raise LookupError("no such customer")
        async with bus.consume(f"{NAME}.dead", "operator") as dead:
            await anext(dead)


def write_home(out: Path, node_id: str) -> None:
    """The files that commands keep for a person: known peers with a petname, and contexts."""
    home = out / "home"
    home.mkdir()
    env = {**os.environ, "PARLEY_HOME": str(home)}
    for command in (
        ["peers", "add", node_id, "shop"],
        ["context", "add", "shop", f"tcp://127.0.0.1:4747#{node_id}", "--trust", "known", "--use"],
    ):
        subprocess.run([sys.executable, "-m", "parley", *command], env=env, check=True)
    for lock in home.glob("*.lock"):
        lock.unlink()


SETTINGS = """\
[node]
role = "server"
max_connections = 500
peer_memory = 1_048_576
resume = 10

[node.limits]
max_payload = 65_536
seal_events = 16

[node.algorithms]
kex = ["x25519"]

[serve]
listen = ["tcp://127.0.0.1:4747"]
trust = "first-use"
log_level = "info"
access_log = true

[journal]
directory = "journal"
segment_size = 1_048_576
fsync = "always"

[bus]
url = "sqlite:////var/lib/parley/bus.db"

[federation]
accounts = "off"

[dialects.limits]
clients = 16

[simproto]
listen = ["tcp://127.0.0.1:5001"]

[named]
flavour = "plain"
listen = ["tcp://127.0.0.1:5002"]

[relay]
listen = ["tcp://127.0.0.1:5003"]
feedback = false
"""


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
