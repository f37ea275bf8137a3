"""`parley receive`: receive files in a directory, from any sender or from the sender of a code.

Without `--yes` or `--trust`, the user is asked once about each unknown sender. Without a terminal,
files of unknown senders are refused.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from parley._node.apps.pairing.code import Code, looks_like_code
from parley._node.apps.transfer.protocol import FileOffer
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.store import FileStore
from parley._node.cli.options import DEFAULT_ADDRESS, NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.prompts import can_prompt, prompt_yes_no
from parley._node.cli.run import make_node, peer_fields, run
from parley._node.cli.transfer.by_code import connect_by_code, record_peer
from parley._node.cli.transfer.display import Display
from parley._node.errors import ConfigError, FileError, os_reason
from parley._node.logs import one_line
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.remote.remote import Remote
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.words import fingerprint, in_two_lines

REMEMBERED: Final = 1_024  # answers to remember
_QUESTION: Final = """\
An unknown sender wants to send {name} ({size:,} bytes). It has proved the ID
    {node_id}
or, as words to read aloud,
    {words}
Accept files from this sender from now on?"""
_NAMELESS: Final = "A sender without an ID wants to send {name} ({size:,} bytes). Accept it?"


class SenderConsent:
    """Asks the user once about each unknown sender. `paused` suspends other output during a
    question.
    """

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
        """Return whether to accept files of this peer; raises the errors of `KnownPeers`."""
        if self._is_known(peer):
            return True  # known peers don't wait for questions about others
        async with self._turn:
            who = str(peer.node_id or peer.name)
            if who not in self.answers:
                self.answers[who] = await self._is_welcome(peer, offer)
                if len(self.answers) > REMEMBERED:
                    self.answers.popitem(last=False)
            return self.answers[who]

    def _is_known(self, peer: Remote) -> bool:
        if peer.node_id is None:
            return False
        ids = (peer.node_id, *(peer.predecessors if isinstance(peer, Peer) else ()))
        return any(self._known.lookup(one) is not None for one in ids)

    async def _is_welcome(self, peer: Remote, offer: FileOffer) -> bool:
        node_id = peer.node_id
        words = "" if node_id is None else fingerprint(node_id)
        self._out.event("stranger", node_id=node_id and str(node_id), words=words, name=offer.name)
        if not can_prompt(self._out):
            who = f"{node_id} ({words})" if node_id else f"{peer.name}, which proved no ID"
            self._out.remark(
                f"parley: refused files from unknown sender {who}: there is no terminal to ask "
                "at; give --yes or --trust, or add the sender with `parley peers add`"
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
            wanted = await prompt_yes_no(question.format(**shown))
        if wanted and node_id is not None:
            self._known.add(node_id, None, datetime.now(UTC))
        return wanted


ENDS: frozenset[int] = frozenset({CloseCode.NORMAL, CloseCode.GOING_AWAY})


@dataclass(frozen=True, kw_only=True)
class ReceiveOptions:
    """The options of `parley receive`."""

    what: str
    directory: Path | None
    listen: list[str] | None
    at: str | None
    home: str | None
    yes: bool
    force: bool
    once: bool
    count: int | None
    max_size: int | None
    parallel: int


def receive(options: NodeOptions, given: ReceiveOptions) -> None:
    if given.once and given.count is not None:
        raise ConfigError(
            f"cannot use --once with --count {given.count}: leave one of the options out"
        )
    code = Code.parse(given.what) if looks_like_code(given.what) else None
    if code is None and given.directory is not None:
        raise ConfigError(
            f"cannot receive into both {given.what!r} and '{given.directory}': the first is not "
            "a code; give one directory"
        )
    if code is None and (given.at is not None or given.home is not None):
        option = f"--home {given.home}" if given.at is None else f"--at {given.at}"
        raise ConfigError(
            f"cannot use {option} with the directory {given.what!r}: it requires a code"
        )
    if code is not None and given.listen:
        raise ConfigError(
            f"cannot use --listen {given.listen[0]} with a code: the receiver connects to the "
            "sender; leave --listen out"
        )
    if code is not None and options.plaintext:
        raise ConfigError(
            "cannot use a code with --plaintext: peers prove no identity without encryption; "
            "leave --plaintext out"
        )
    place = (given.directory or Path()) if code is not None else Path(given.what)
    store = partial(_opened, place, force=given.force, max_size=given.max_size)
    receiver = partial(
        FileReceiver, parallel=given.parallel, count=1 if given.once else given.count
    )

    async def listening(options: NodeOptions, out: Output) -> None:
        display = Display(out, "<-")
        with store() as opened:
            async with make_node(options, options.listening_trust()) as node:
                if given.yes or options.trust is not None:
                    taking = receiver(opened, display)
                else:
                    known = KnownPeers(default_known_peers())
                    strangers = SenderConsent(out, known, display.paused)
                    taking = receiver(opened, display, welcome=strangers.welcome)
                taking.offer_on(node)
                addresses = [
                    await node.listen(address) for address in given.listen or [DEFAULT_ADDRESS]
                ]
                for address in addresses:
                    out.print(f"listening on {address}")
                out.event(
                    "ready",
                    node_id=str(node.node_id),
                    addresses=addresses,
                    directory=str(place),
                )
                with display.shown():
                    await taking.finished.wait()
        out.done(files=taking.arrived)

    async def going(options: NodeOptions, out: Output, code: Code) -> None:
        display = Display(out, "<-")
        with store() as opened:
            taking = receiver(opened, display)

            def ready(node: Node, peer: Peer) -> None:
                taking.offer_on(node, allow=peer.node_id)

            async with connect_by_code(options, out, code, given.at, given.home, ready) as peer:
                out.event("connected", **peer_fields(peer))
                assert peer.node_id is not None  # the code has proved it
                record_peer(out, peer.node_id)
                with display.shown():
                    await _until_sent(peer, taking)
        out.done(files=taking.arrived)

    if code is None:
        run(options, listening, log_level="warning")
    else:
        run(options, partial(going, code=code))


async def _until_sent(peer: Peer, taking: FileReceiver) -> None:
    """Wait until the sender has sent all files, or as many as are wanted.

    Raises:
        PeerClosedError: the sender did not finish.
    """

    async def enough() -> None:
        await taking.finished.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enough)
        ended = await peer.closed()
        if ended.code not in ENDS:
            raise peer.closed_error()
        tasks.cancel_scope.cancel()


def _opened(directory: Path, *, force: bool, max_size: int | None) -> FileStore:
    try:
        return FileStore(directory, force=force, max_size=max_size)
    except OSError as error:
        raise FileError(f"cannot store files in '{directory}': {os_reason(error)}") from error
