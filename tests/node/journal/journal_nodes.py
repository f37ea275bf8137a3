"""Nodes that keep a journal, and a disk that a test can block or make fail."""

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from parley import Call, Node, NodeConfig
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import segment_writer as writing
from parley._node.journal.journal import Journal

AUDITOR = AuditorPrivateKey.create()
KEY = AUDITOR.public
CONFIG = NodeConfig(algorithms={"kex": ("x25519",)})


def journaled(directory: Path, identity: Identity | None = None, **settings: Any) -> Node:
    """Return a node with a journal and an echo handler."""
    journal = Journal.open(directory, KEY, **settings)
    node = Node(identity or Identity.create(), config=CONFIG, journal=journal)

    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    return node


def journal_of(node: Node) -> Journal:
    assert node.journal is not None
    return node.journal


class Disk:
    """The system's write and sync calls, which a test can block or make fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = Event()
        self.free.set()
        self.synced = Event()
        self.synced.set()
        self.syncs = 0
        self.error: OSError | None = None
        write, sync = os.writev, writing._sync_data

        def writev(file: int, records: list[bytes]) -> int:
            assert self.free.wait(20)
            if self.error is not None:
                raise self.error
            return write(file, records)

        def sync_data(file: int) -> None:
            assert self.synced.wait(20)
            self.syncs += 1
            sync(file)

        monkeypatch.setattr(os, "writev", writev)
        monkeypatch.setattr(writing, "_sync_data", sync_data)
