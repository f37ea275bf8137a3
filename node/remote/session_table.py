"""The resumable sessions of one node, by their tags, with limits on suspended ones
(docs/protocol.md section 17)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.config import NodeConfig
from parley._node.protocol.resumption import ClosedSession, ResumeRequest, spend_mac
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Timer

_TOO_MANY: Final = "too many sessions, or too much of them, are without a transport"


@dataclass(eq=False, slots=True)
class _Waiting:
    """A suspended session, or a closed one that can still be resumed to receive its last data."""

    live: LiveConnection
    held: Callable[[], int]
    end: Callable[[str], None]

    @property
    def node_id(self) -> NodeId | None:
        return self.live.node_id


class SessionTable:
    """The resumable sessions of one node. Changed limits in `config` apply from the next suspension
    on.

    A session that another node dialled is found when a Resume arrives; closed ones are kept for a
    few seconds.
    """

    def __init__(self, config: NodeConfig, backend: Callable[[], Backend]) -> None:
        self.config = config
        self._backend = backend
        self._by_tag: dict[bytes, LiveConnection | ClosedSession] = {}
        # The sessions without a transport, the longest waiting first.
        self._waiting: dict[LiveConnection | ClosedSession, _Waiting] = {}
        self._timers: dict[ClosedSession, Timer] = {}
        self._grown: Timer | None = None  # Runs when the memory limit is to be checked.

    def __len__(self) -> int:
        """The number of suspended sessions, including closed ones that are kept."""
        return len(self._waiting)

    @property
    def held(self) -> int:
        """The memory that these sessions use, in bytes."""
        return sum(one.held() for one in self._waiting.values())

    @property
    def closed(self) -> list[LiveConnection]:
        return [its.live for one, its in self._waiting.items() if isinstance(one, ClosedSession)]

    def changed(self, live: LiveConnection) -> None:
        """Update the table after a connection opened, ended, was suspended, resumed or refused."""
        if live.refused is not None:
            for one, its in list(self._waiting.items()):
                if isinstance(one, ClosedSession) and its.live is live:
                    self._forget(one)
        resumption = None if live.ended is not None else live.core.resumption
        if live.core.initiator:
            pass
        elif resumption is not None:
            self._know(live, resumption.tags)
        elif live.found_by:
            self._know(live, ())
            remains = live.core.take_closed_session()
            if remains is not None:
                self._keep(remains, live)
        if resumption is None or not live.is_suspended:
            if self._waiting.pop(live, None) is not None:
                live.core.watch_memory(None)
        elif live not in self._waiting:
            live.core.watch_memory(self._grew)
            self._wait(live, _Waiting(live, lambda: live.core.memory, live.lost))

    def handle_resume(self, fresh: LiveConnection, resume: ResumeRequest) -> None:
        """Resume the session that a new connection requests, or refuse it."""
        now = fresh.backend.now()
        found = self._by_tag.get(resume.tag)
        if found is None:
            spend_mac(resume)
        elif isinstance(found, ClosedSession):
            last = found.answer(resume, now)
            if last is not None:
                self._know(found, found.tags)
                fresh.core.send_closed_session(last, now)
                return
        elif found.core.accept_resume(resume, now):
            fresh.became = found
            found.name = found.remote.name = fresh.name
            fresh.driver.hand_over(found.driver, fresh.core.hand_over())
            return
        else:
            found.driver.step()  # The request may have ended it.
        fresh.core.refuse_resume(now)

    def end(self, reason: str) -> None:
        """End all suspended sessions."""
        for one in list(self._waiting.values()):
            one.end(reason)

    def clear(self) -> None:
        for timer in (*self._timers.values(), *([self._grown] if self._grown else [])):
            timer.cancel()
        for table in (self._by_tag, self._waiting, self._timers):
            table.clear()

    def _know(self, one: LiveConnection | ClosedSession, tags: tuple[bytes, ...]) -> None:
        if tags == one.found_by:
            return
        for tag in one.found_by:
            self._by_tag.pop(tag, None)
        one.found_by = tags
        self._by_tag.update(dict.fromkeys(tags, one))

    def _keep(self, remains: ClosedSession, live: LiveConnection) -> None:
        def forget(reason: str = "") -> None:
            self._forget(remains)

        self._know(remains, remains.tags)
        self._timers[remains] = self._backend().call_at(remains.until, forget)
        self._wait(remains, _Waiting(live, lambda: remains.held, forget))

    def _forget(self, remains: ClosedSession) -> None:
        if remains not in self._timers:
            return
        self._know(remains, ())
        self._waiting.pop(remains, None)
        self._timers.pop(remains).cancel()

    def _wait(self, one: LiveConnection | ClosedSession, waiting: _Waiting) -> None:
        self._waiting[one] = waiting
        self._trim(waiting.node_id)

    def _grew(self) -> None:
        """Check limits once the caller, which added memory, has returned."""
        if self._grown is None:
            backend = self._backend()
            self._grown = backend.call_at(backend.now(), self._look)

    def _look(self) -> None:
        self._grown = None
        self._trim(None)

    def _trim(self, node_id: NodeId | None) -> None:
        """End sessions until the limits are kept; `node_id` has a new one."""
        while (surplus := self._surplus(node_id)) is not None:
            its = self._waiting.pop(surplus)
            its.live.core.watch_memory(None)
            its.end(_TOO_MANY)

    def _surplus(self, node_id: NodeId | None) -> LiveConnection | ClosedSession | None:
        """Return a session to end if a limit is exceeded."""
        waiting, config = self._waiting, self.config
        of_id = [one for one, its in waiting.items() if its.node_id == node_id]
        if len(of_id) > config.tuning.parted_per_id:
            return of_id[0]
        if len(waiting) > config.tuning.parted_sessions:
            counts = Counter(its.node_id for its in waiting.values())
            most = max(counts, key=counts.__getitem__)
            return next(one for one, its in waiting.items() if its.node_id == most)
        held = {one: its.held() for one, its in waiting.items()}
        if sum(held.values()) > config.parted_memory:
            sizes: Counter[NodeId | None] = Counter()
            for one, its in waiting.items():
                sizes[its.node_id] += held[one]
            most = max(sizes, key=sizes.__getitem__)
            return max((o for o, i in waiting.items() if i.node_id == most), key=held.__getitem__)
        return None
