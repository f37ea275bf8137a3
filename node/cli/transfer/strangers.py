"""Decides whether `parley receive` accepts files from an unknown sender.

A person at a terminal is asked once for each sender; without a terminal the files are refused. A
yes puts the sender on record as a known peer; a no is valid until the command ends.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final

import anyio

from parley._node.apps.transfer.protocol import FileOffer
from parley._node.cli.asking import ask_on_terminal, can_ask
from parley._node.cli.output import Output
from parley._node.logs import one_line
from parley._node.remote.remote import Remote
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.petnames import fingerprint, in_two_lines

REMEMBERED: Final = 1_024  # answers
_QUESTION: Final = """\
Somebody new wants to send {name} ({size:,} bytes). They have proved the id
    {node_id}
and are called, in words to read aloud,
    {words}
Take files from them from now on?"""
_NAMELESS: Final = "Somebody who proves no id wants to send {name} ({size:,} bytes). Take files?"


class Strangers:
    """Asks about each sender once. `paused` keeps other output off the terminal meanwhile."""

    def __init__(
        self,
        out: Output,
        known_peers: KnownPeers,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._out = out
        self._known = known_peers
        self._paused = paused
        self.answers: OrderedDict[str, bool] = OrderedDict()
        self._turn = anyio.Lock()  # one question at a time

    async def welcome(self, peer: Remote, offer: FileOffer) -> bool:
        """Whether files of this peer are taken; KnownPeersError as `KnownPeers`."""
        if self._is_known(peer):
            return True  # whatever question about others waits for an answer
        async with self._turn:
            who = str(peer.node_id or peer.name)
            if who not in self.answers:
                self.answers[who] = await self._is_welcome(peer, offer)
                if len(self.answers) > REMEMBERED:
                    self.answers.popitem(last=False)
            return self.answers[who]

    def _is_known(self, peer: Remote) -> bool:
        return peer.node_id is not None and self._known.lookup(peer.node_id) is not None

    async def _is_welcome(self, peer: Remote, offer: FileOffer) -> bool:
        node_id = peer.node_id
        words = "" if node_id is None else fingerprint(node_id)
        self._out.event("stranger", node_id=node_id and str(node_id), words=words, name=offer.name)
        if not can_ask(self._out):
            who = f"{node_id} ({words})" if node_id else f"{peer.name}, who proves no id"
            self._out.remark(
                f"parley: refused files of an unknown sender: {who}; there is no terminal to ask "
                "at: give --yes, --trust, or `parley peers add` the sender"
            )
            return False
        question = _NAMELESS if node_id is None else _QUESTION
        shown = {
            "name": one_line(offer.name),
            "size": offer.size,
            "node_id": node_id,
            "words": in_two_lines(words, "    "),
        }
        with self._paused():
            wanted = await ask_on_terminal(question.format(**shown))
        if wanted and node_id is not None:
            self._known.add(node_id, None, datetime.now(UTC))
        return wanted
