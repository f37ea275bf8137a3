"""Hooks of what is kept connected: functions of the application that are called when it is up, and
when it is down. What they raise is logged and changes nothing.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from parley._node.errors import APPLICATION_ERRORS, ConfigError, PeerClosedError
from parley._node.transport.backend import Backend
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import is_async
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.link")

# Hooks of each kind.
MOST_HOOKS: Final = 64

Hook = Callable[..., Awaitable[None] | None]


class Hooks:
    """The hooks of one kind, in the order in which they were added. Functions are called at once,
    coroutine functions run in tasks of their own: one at a time each, so that one which is still
    running when its turn comes again misses that turn, which is logged."""

    def __init__(self, kind: str, argument: str) -> None:
        """`argument` is the name of the argument that its hooks get."""
        self._kind = kind
        self._argument = argument
        self._hooks: list[Hook] = []
        self._running: dict[Hook, Runner] = {}

    def add(self, hook: Hook) -> None:
        """Add one.

        Raises:
            ConfigError: it cannot be called, or there are 64.
        """
        require_callable(hook, f"a hook of {self._kind}", self._argument)
        if len(self._hooks) >= MOST_HOOKS:
            raise ConfigError(f"there are at most {MOST_HOOKS} hooks of a kind")
        self._hooks.append(hook)

    def call(self, loop: Backend, argument: Any) -> None:
        """Call them all."""
        for hook in self._hooks:
            if not is_async(hook):
                try:
                    hook(argument)
                except APPLICATION_ERRORS:
                    logger.exception(
                        "a hook of %s failed", self._kind, extra={"event": "hook.failed"}
                    )
            elif hook in self._running:
                logger.warning(
                    "%s: %s is still running, and misses a turn",
                    self._kind,
                    getattr(hook, "__qualname__", type(hook).__qualname__),
                    extra={"event": "hook.missed"},
                )
            else:
                self._running[hook] = loop.spawn(self._run, hook, argument)

    def cancel(self) -> None:
        """Cancel those that run."""
        running, self._running = self._running, {}
        for runner in running.values():
            runner.cancel()

    async def _run(self, hook: Hook, argument: Any) -> None:
        mine = self._running.get(hook)
        try:
            made = hook(argument)
            if made is not None:
                await made
        except anyio.get_cancelled_exc_class():
            raise
        except PeerClosedError as error:
            logger.info("a hook of %s: %s", self._kind, error, extra={"event": "hook.ended"})
        except APPLICATION_ERRORS:
            logger.exception("a hook of %s failed", self._kind, extra={"event": "hook.failed"})
        finally:
            if self._running.get(hook) is mine:
                self._running.pop(hook, None)
