"""Sessions in which nodes present key statements in their Proofs, each node with a journal."""

from collections.abc import Sequence

from parley._crypto.identity import Identity, NodeId
from parley._crypto.statements import create_succession
from tests.node.journal.memory_journal import MemoryJournal
from tests.node.protocol.pair import Pair, make_config


class Sessions:
    """Sessions between any nodes, one after the other. `journals` has a journal of each."""

    def __init__(self) -> None:
        self.journals: dict[NodeId, MemoryJournal] = {}

    def meet(self, one: Identity, other: Identity, presented: Sequence[bytes] = ()) -> None:
        """Run a session in which `one` dials `other` and presents statements."""
        journals = [
            self.journals.setdefault(each.node_id, MemoryJournal(each)) for each in (one, other)
        ]
        pair = Pair(
            make_config(one, statements=tuple(presented)),
            make_config(other),
            observers=(journals[0].observer(), journals[1].observer()),
        )
        pair.pump()
        pair.a.core.send(1, 0, 64, 1, b"hello", lbm=False)
        pair.run(0.05)
        pair.a.core.close(pair.now, 0)
        pair.run(5)
        for journal in journals:
            journal.loop.run()

    def end(self) -> None:
        for journal in self.journals.values():
            journal.log.end()

    def segments(self, *nodes: Identity) -> dict[str, bytes]:
        """Return the segments of these nodes by stem, or of all nodes."""
        chosen = [node.node_id for node in nodes] or list(self.journals)
        return {
            stem: data for node in chosen for stem, data in self.journals[node].segments.items()
        }


class Theft:
    """Bob's key is stolen, and his recovery key names an heir.

    Alice has a session with Bob, then one with the heir, who presents the succession. Then she has
    two more with Bob's old key, because she did not know Bob when the heir came.
    """

    def __init__(self) -> None:
        self.alice = Identity.create()
        self.bob, self.recovery = Identity.create_recoverable()
        self.heir, _ = Identity.create_recoverable()
        self.made_ms = 1_700_000_000_000  # The signer's claim, which here is backdated.
        self.succession = create_succession(self.recovery, self.heir, made_ms=self.made_ms)
        self.sessions = Sessions()
        self.sessions.meet(self.bob, self.alice)
        self.sessions.meet(self.heir, self.alice, [self.succession.encoded])
        self.sessions.meet(self.bob, self.alice)
        self.sessions.meet(self.bob, self.alice)
        self.sessions.end()
