"""Reviews: whether those who were let in are trusted still, asked of what let each of them in.

A review is asked for, or follows from a file of known peers that has changed. There is one at a
time, in a task of the node's own: it is carried through whatever becomes of those who wait for it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from anyio import CapacityLimiter

from parley._node.errors import APPLICATION_ERRORS, KnownPeersError, NotTrustedError, ParleyError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause_until, yield_to_loop
from parley._node.transport.loop import Runner
from parley._node.trust.decision import Deciding
from parley._node.trust.known_peers import LOOK, UNREADABLE, WatchedFile, in_thread
from parley._node.trust.policies import Decider, Hook, TrustPolicy, known_peers_of, recheck

logger = logging.getLogger("parley.trust")

# Peers that a policy is asked about before others have their turn.
AT_A_TIME: Final = 256
# Peers that an accept hook is asked about at once.
HOOKS_AT_ONCE: Final = 64


class Reviews:
    """The reviews of one node. `everybody` are those who may have to be asked about: whoever is
    let in or asks to be, and whoever may come back for the rest of a session."""

    def __init__(
        self, everybody: Callable[[], Iterable[Deciding]], loop: Callable[[], Backend]
    ) -> None:
        self._everybody = everybody
        self._loop = loop
        self.changes = Condition(lambda: loop().waiter())
        self.runner: Runner | None = None
        self._asked_for = self._done = 0
        self._hooks = 0  # that are being asked
        self._files: dict[int, WatchedFile] = {}  # by their policies

    async def review(self) -> None:
        """Have everybody asked about who is there now; returns when that is done. Whoever asks
        while a review is under way waits for the next one.

        Raises:
            ParleyError: the node does not run, or has ended meanwhile.
        """
        self._asked_for += 1
        number = self._asked_for
        self._begin()
        self.changes.notify()
        await self.changes.until(lambda: self._done >= number or self.runner is None)
        if self._done < number:
            raise ParleyError("the node has ended, and its peers with it")

    def let_in(self, trust: Decider) -> None:
        """Somebody was let in: as long as that holds, a file that `trust` decides by is watched."""
        if self.runner is None and known_peers_of(trust) is not None:
            self._begin()

    # Inside.

    def _begin(self) -> None:
        if self.runner is None:
            self.runner = self._loop().spawn(self._run)

    async def _run(self) -> None:
        # Of its own: handlers that keep all threads busy must not get peers thrown out.
        threads = CapacityLimiter(1)
        try:
            while self._watched() or self._done < self._asked_for:
                if self._done < self._asked_for:
                    number = self._asked_for
                    await self._ask(threads, None)
                    self._done = number
                    self.changes.notify()
                else:
                    await self._look(threads)
                    await pause_until(
                        self._loop(), LOOK, self.changes, lambda: self._done < self._asked_for
                    )
        finally:
            self.runner = None
            self.changes.notify()

    def _watched(self) -> bool:
        """Whether there are files to be looked at: those that let somebody in who is there."""
        policies = {id(one.trust): one.trust for one in self._everybody() if one.is_made}
        before, self._files = self._files, {}
        for key, trust in policies.items():
            known_peers = known_peers_of(trust)
            if known_peers is not None:
                file = before.get(key)
                same = file is not None and file.known_peers is known_peers
                self._files[key] = file if file is not None and same else WatchedFile(known_peers)
        return bool(self._files)

    async def _look(self, threads: CapacityLimiter) -> None:
        """Ask about those whom a file let in that has changed."""
        files = list(self._files.items())
        stamps = await in_thread(threads, lambda: [file.stamp() for _, file in files])
        due = {
            key
            for number, (key, file) in enumerate(files)
            if stamps is None or file.is_due(stamps[number])
        }
        if due:
            await self._ask(threads, due)

    async def _ask(self, threads: CapacityLimiter, policies: Collection[int] | None) -> None:
        """Ask about everybody, or about those of some `policies`."""
        asked: dict[int, list[Deciding]] = {}
        for one in list(self._everybody()):
            if policies is None or id(one.trust) in policies:
                one.outdate()
                if one.is_made:
                    asked.setdefault(id(one.trust), []).append(one)
        for key, those in asked.items():
            trust = those[0].trust
            if isinstance(trust, Hook):
                await self._ask_hook(trust, those)
            else:
                file = self._files.get(key)
                waits = policies is not None and file is not None and file.is_still
                await self._ask_policy(trust, those, file, threads, waits=waits)

    async def _ask_hook(self, hook: Hook, those: Sequence[Deciding]) -> None:
        for one in those:
            await self.changes.until(lambda: self._hooks < HOOKS_AT_ONCE)
            self._hooks += 1
            self._loop().spawn(self._ask_hook_about, hook, one)
        await self.changes.until(lambda: not self._hooks)

    async def _ask_hook_about(self, hook: Hook, one: Deciding) -> None:
        refusal: NotTrustedError | None = NotTrustedError("the question was cancelled")
        try:
            refusal = await one.refusal_of(hook)
        finally:
            # Also when the hook let a cancellation of its own out.
            self._hooks -= 1
            if refusal is not None and one.trust is hook:
                one.refuse(refusal)
            self.changes.notify()

    async def _ask_policy(
        self,
        policy: TrustPolicy,
        those: Sequence[Deciding],
        file: WatchedFile | None,
        threads: CapacityLimiter,
        *,
        waits: bool,
    ) -> None:
        """Ask a policy. One that `waits` for its file to be still learns nothing from a file that
        somebody began to write as it was read: it may have been empty."""
        loop = self._loop()
        # Of others nobody knows how long they take for each peer.
        size = AT_A_TIME if file is not None or not policy.reads_files else 1
        for start in range(0, len(those), size):
            some = those[start : start + size]
            refusals: Sequence[NotTrustedError | None] | None
            if policy.reads_files:
                refusals = await in_thread(threads, partial(_refusals, policy, some))
                if refusals is None:
                    text = f"trust policy {policy.name!r} did not answer in {UNREADABLE:g} s"
                    refusals = [NotTrustedError(text)] * len(some)
            else:
                refusals = _refusals(policy, some)
                await yield_to_loop(loop)
            if file is not None:
                if waits and await in_thread(threads, file.stamp) != file.seen:
                    return
                if file.is_waited_for(_trouble(refusals), loop.now()):
                    return
            for one, refusal in zip(some, refusals, strict=True):
                # Meanwhile another policy may have been set.
                if refusal is not None and one.trust is policy:
                    one.refuse(refusal)
        if file is not None:
            file.reviewed = file.seen


def _trouble(refusals: Iterable[NotTrustedError | None]) -> KnownPeersError | None:
    """Why the file could not be read, if they say that."""
    causes = [refusal.__cause__ for refusal in refusals if refusal is not None]
    return next((cause for cause in causes if isinstance(cause, KnownPeersError)), None)


def _refusals(policy: TrustPolicy, some: Sequence[Deciding]) -> list[NotTrustedError | None]:
    return [_refusal(policy, one) for one in some]


def _refusal(policy: TrustPolicy, one: Deciding) -> NotTrustedError | None:
    try:
        return one.refusal(partial(recheck, policy))
    except APPLICATION_ERRORS:
        logger.exception(
            "the trust policy %r failed",
            policy.name,
            extra={"event": "trust.failed", "policy": policy.name},
        )
        return NotTrustedError(f"trust policy {policy.name!r} failed")
