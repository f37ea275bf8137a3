"""`Revalidation`: rechecks whether accepted peers are still trusted.

It runs on request and when a file of known peers has changed. Only one check runs at a time, in a
task of the node, which continues even if the caller is cancelled.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from anyio import CapacityLimiter

from parley._node.errors import (
    APPLICATION_ERRORS,
    KeyStatementsError,
    KnownPeersError,
    NotTrustedError,
    ParleyError,
)
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause_until, yield_to_loop
from parley._node.transport.loop import Runner
from parley._node.trust.decision import TrustDecision
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import (
    HookPolicy,
    ResolvedPolicy,
    TrustPolicy,
    known_peers_of,
    recheck,
)
from parley._node.trust.watched_file import LOOK, UNREADABLE, WatchedFile, in_thread

logger = logging.getLogger("parley.trust")

# Peers that a policy checks before other tasks can run.
BATCH_SIZE: Final = 256
# Maximum number of concurrent calls of an accept hook.
CONCURRENT_HOOKS: Final = 64


class Revalidation:
    """Rechecks the peers of one node.

    `decisions` returns the decisions on all peers: accepted, in a handshake, or with a resumable
    session.
    """

    def __init__(
        self,
        decisions: Callable[[], Iterable[TrustDecision]],
        loop: Callable[[], Backend],
        statements: KeyStatements,
    ) -> None:
        self._decisions = decisions
        self._statements = WatchedFile(statements)
        self._loop = loop
        self.changes = Condition(lambda: loop().waiter())
        self.runner: Runner | None = None
        self._requested = self._done = 0
        self._hooks = 0  # number of running hooks
        self._files: dict[int, WatchedFile[KnownPeers]] = {}  # by the ids of their policies

    async def review(self) -> None:
        """Recheck all current peers and return when that is done.

        A request during another check waits for a new one.

        Raises:
            ParleyError: the node is not running, or stopped during the check.
        """
        self.request()
        number = self._requested
        await self.changes.until(lambda: self._done >= number or self.runner is None)
        if self._done < number:
            raise ParleyError("cannot complete the review: the node has stopped")

    def request(self) -> None:
        """Start a recheck of all current peers."""
        self._requested += 1
        self._start()
        self.changes.notify()

    def watch_statements(self) -> None:
        """Watch the file of key statements, if there is one, until the node stops."""
        if self._statements.file.path is not None:
            self._start()

    def peer_accepted(self, trust: ResolvedPolicy) -> None:
        """Watch the file that `trust` uses, if any, while peers that it accepted are connected."""
        if self.runner is None and known_peers_of(trust) is not None:
            self._start()

    def _start(self) -> None:
        if self.runner is None:
            self.runner = self._loop().spawn(self._run)

    async def _run(self) -> None:
        # A separate thread, so that busy handlers don't delay it.
        threads = CapacityLimiter(1)
        try:
            while self._watch_files() or self._done < self._requested:
                if self._done < self._requested:
                    number = self._requested
                    await self._check(threads, None)
                    self._done = number
                    self.changes.notify()
                else:
                    await self._check_files(threads)
                    await self._check_statements(threads)
                    await pause_until(
                        self._loop(), LOOK, self.changes, lambda: self._done < self._requested
                    )
        finally:
            self.runner = None
            self.changes.notify()

    def _watch_files(self) -> bool:
        """Update the set of watched files; return whether there are any.

        A file is watched if its policy accepted a current peer. The file of key statements is
        always watched, because links may wait for a successor.
        """
        policies = {id(one.trust): one.trust for one in self._decisions() if one.is_made}
        before, self._files = self._files, {}
        for key, trust in policies.items():
            known_peers = known_peers_of(trust)
            if known_peers is not None:
                file = before.get(key)
                same = file is not None and file.file is known_peers
                self._files[key] = file if file is not None and same else WatchedFile(known_peers)
        return bool(self._files) or self._statements.file.path is not None

    async def _check_files(self, threads: CapacityLimiter) -> None:
        """Recheck the peers that were accepted with a changed file."""
        files = list(self._files.items())
        stamps = await in_thread(threads, lambda: [file.stamp() for _, file in files])
        due = {
            key
            for number, (key, file) in enumerate(files)
            if stamps is None or file.is_due(stamps[number])
        }
        if due:
            await self._check(threads, due)

    async def _check_statements(self, threads: CapacityLimiter) -> None:
        """Read a changed file of key statements, which then reports its changes. Refuse all peers
        if it stays unreadable.
        """
        watched = self._statements
        if not watched.is_due(await in_thread(threads, watched.stamp)):
            with suppress(KeyStatementsError):
                await in_thread(threads, watched.file.write_again)
            return
        error: ParleyError | None = None
        try:
            if not await in_thread(threads, self._refresh_statements):
                error = KeyStatementsError(
                    f"cannot read {watched.file.path}: it took longer than {UNREADABLE:g} s"
                )
        except KeyStatementsError as caught:
            error = caught
        if watched.is_tolerated(error, self._loop().now()):
            return
        watched.reviewed = watched.seen
        if error is not None:
            for one in list(self._decisions()):
                if one.is_made:
                    one.refuse(NotTrustedError(str(error)))

    def _refresh_statements(self) -> bool:
        self._statements.file.refresh()
        return True

    async def _check(self, threads: CapacityLimiter, policies: Collection[int] | None) -> None:
        """Recheck all peers, or only those that `policies` accepted."""
        peers: dict[int, list[TrustDecision]] = {}
        for one in list(self._decisions()):
            if policies is None or id(one.trust) in policies:
                one.outdate()
                if one.is_made:
                    peers.setdefault(id(one.trust), []).append(one)
        for key, decisions in peers.items():
            trust = decisions[0].trust
            if isinstance(trust, HookPolicy):
                await self._check_with_hook(trust, decisions)
            else:
                file = self._files.get(key)
                waits = policies is not None and file is not None and file.is_still
                await self._check_with_policy(trust, decisions, file, threads, waits=waits)

    async def _check_with_hook(self, hook: HookPolicy, decisions: Sequence[TrustDecision]) -> None:
        for one in decisions:
            await self.changes.until(lambda: self._hooks < CONCURRENT_HOOKS)
            self._hooks += 1
            self._loop().spawn(self._run_hook, hook, one)
        await self.changes.until(lambda: not self._hooks)

    async def _run_hook(self, hook: HookPolicy, one: TrustDecision) -> None:
        refusal: NotTrustedError | None = NotTrustedError("the check was cancelled")
        try:
            refusal = await one.refusal_of(hook)
        finally:
            # Also when the hook itself raised a cancellation.
            self._hooks -= 1
            if refusal is not None and one.trust is hook:
                one.refuse(refusal)
            self.changes.notify()

    async def _check_with_policy(
        self,
        policy: TrustPolicy,
        decisions: Sequence[TrustDecision],
        file: WatchedFile[KnownPeers] | None,
        threads: CapacityLimiter,
        *,
        waits: bool,
    ) -> None:
        """Recheck peers with a policy.

        If it `waits` for a stable file, ignore the results if the file changed while it was read,
        because it may have been empty.
        """
        loop = self._loop()
        # Other policies that read files may be slow for each peer.
        size = BATCH_SIZE if file is not None or not policy.reads_files else 1
        for start in range(0, len(decisions), size):
            some = decisions[start : start + size]
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
                if file.is_tolerated(_file_error(refusals), loop.now()):
                    return
            for one, refusal in zip(some, refusals, strict=True):
                # Another policy may have been set in the meantime.
                if refusal is not None and one.trust is policy:
                    one.refuse(refusal)
        if file is not None:
            file.reviewed = file.seen


def _file_error(refusals: Iterable[NotTrustedError | None]) -> KnownPeersError | None:
    """Return the error of a file that could not be read, if it caused the refusals."""
    causes = [refusal.__cause__ for refusal in refusals if refusal is not None]
    return next((cause for cause in causes if isinstance(cause, KnownPeersError)), None)


def _refusals(policy: TrustPolicy, some: Sequence[TrustDecision]) -> list[NotTrustedError | None]:
    return [_refusal(policy, one) for one in some]


def _refusal(policy: TrustPolicy, one: TrustDecision) -> NotTrustedError | None:
    try:
        return one.refusal(partial(recheck, policy))
    except APPLICATION_ERRORS:
        logger.exception(
            "the trust policy %r failed",
            policy.name,
            extra={"event": "trust.failed", "policy": policy.name},
        )
        return NotTrustedError(f"trust policy {policy.name!r} failed")
