"""A room across servers: it lives at one of them, people at three of them write, and all read it in one
order, each from home.

Run it with `uv run python examples/19_room_across_servers.py`.
"""

from contextlib import AsyncExitStack

import anyio

from parley import Call, Identity, Node
from parley.federation import Federation
from parley.settings import FederationSettings

SERVERS = {name: Identity.create() for name in ("north", "west", "east")}
PEOPLE = {name: Identity.create() for name in ("ann", "ben", "cas")}  # each at one of the servers
NAMES = {identity.node_id: name for name, identity in PEOPLE.items()}
LINES = 3
