"""Reload the settings at SIGHUP, and apply those that can change without a restart, all or none.

If the new settings are invalid, the old ones stay and the reason is logged. Settings that need a
restart are logged.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from parley._crypto.identity import NodeId
from parley._node.cli.exit_codes import failure
from parley._node.cli.logging_setup import change_level
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, ignore_lost_output
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.bus_rights import BusRights, require_bus
from parley._node.cli.serve.systemd import Supervisor
from parley._node.config import CHANGEABLE, NodeConfig
from parley._node.handlers.permissions import read_roles
from parley._node.node import Node
from parley._node.server.federation import Federation
from parley._node.settings import Settings
from parley._node.settings.sources import changed, merge_reloadable
from parley._node.trust.policies import TrustPolicy

logger = logging.getLogger("parley.settings")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The running parts whose settings can change. If the module of an `application` created the
    node, the module controls its limits and trust.
    """

    node: Node
    federation: Federation | None
    rights: BusRights
    supervisor: Supervisor
    out: Output
    application: Application | None = None


@dataclass(frozen=True, slots=True)
class _Reread:
    """The new settings, and the objects created from them."""

    settings: Settings
    config: NodeConfig
    trust: TrustPolicy | None  # None: unchanged
    roles: dict[NodeId, frozenset[str]] | None
    level: str
    taken: list[str]
    restart: list[str]


class Reloader:
    """Reloads the settings with `load`. `settings` are the current ones."""

    def __init__(
        self, load: Callable[[], Settings], options: NodeOptions, settings: Settings
    ) -> None:
        self._load = load
        self._options = options
        self._settings = settings
        self._served: RunningServer | None = None

    @contextmanager
    def reloads(self, served: RunningServer) -> Iterator[None]:
        """Reload the settings of this server on SIGHUP inside the block; outside, SIGHUP is
        ignored.
        """
        self._served = served
        try:
            yield
        finally:
            self._served = None

    async def hangup(self) -> None:
        """Reload the settings. Errors are logged and not raised."""
        served = self._served
        if served is None:
            text = "ignored SIGHUP: the server is starting or closing"
            logger.warning(text, extra={"event": "reload.ignored"})
            return
        with served.supervisor.reloading():
            try:
                reread = await to_thread.run_sync(self._reread, served)
                await _apply(reread, served, self._settings)
            except Exception as error:
                found = failure(error)
                logger.error(
                    "cannot reload the settings, which stay unchanged: %s",
                    found.text if found is not None else _unknown(error),
                    exc_info=error if found is None else None,
                    extra={"event": "reload.failed"},
                )
                with ignore_lost_output():
                    served.out.event("reload-failed", text=found.text if found else _unknown(error))
                return
        self._settings = reread.settings
        self._report(reread, served.out)

    def _reread(self, served: RunningServer) -> _Reread:
        new = self._load()
        require_bus(new.bus)
        taken, restart = changed(self._settings, new)
        # A server that started without a federation or a bus needs a restart to get one.
        there = {"federation": served.federation, "bus": self._settings.bus.url}
        restart += [name for name in taken if there.get(name.partition(".")[0], True) is None]
        restart.sort()
        taken = [name for name in taken if name not in restart]
        settings = merge_reloadable(self._settings, new)
        options = self._options.with_settings(settings)
        config, trust = served.node.config, None
        if served.application is None or served.application.own_node(options) is None:
            new_config, trust = options.config, options.listening_trust()
            config = replace(config, **{name: getattr(new_config, name) for name in CHANGEABLE})
        return _Reread(
            settings,
            config,
            trust,
            self._read_roles(settings.serve.roles),
            options.log_level or settings.serve.log_level,
            taken,
            restart,
        )

    def _read_roles(self, path: Path | None) -> dict[NodeId, frozenset[str]] | None:
        """Return the roles of the file; none if the file was removed from the settings."""
        if path is not None:
            return read_roles(path)
        return None if self._settings.serve.roles is None else {}

    def _report(self, reread: _Reread, out: Output) -> None:
        logger.info(
            "settings reloaded and every peer's trust re-evaluated; changed: %s",
            ", ".join(reread.taken) or "none",
            extra={"event": "reload.done", "changed": reread.taken},
        )
        with ignore_lost_output():
            out.print(f"settings reloaded: {', '.join(reread.taken) or 'nothing'} changed")
            out.event("reloaded", changed=reread.taken, restart=reread.restart)
        if reread.restart:
            logger.warning(
                "cannot apply changes of these settings without a restart: %s",
                ", ".join(reread.restart),
                extra={"event": "reload.needs-restart", "settings": reread.restart},
            )


def _unknown(error: Exception) -> str:
    return f"internal error: {type(error).__name__}: {error}"


async def _apply(reread: _Reread, served: RunningServer, before: Settings) -> None:
    """Apply the settings. If one fails, undo the previous ones and raise the error."""
    node, rights, new = served.node, served.rights, reread.settings
    with ExitStack() as undo:
        was = node.config
        node.change_limits(reread.config)
        undo.callback(node.change_limits, was)
        rights.change(new.bus)
        undo.callback(rights.change, before.bus)
        if served.federation is not None:
            change, old = served.federation.change_members, before.federation
            if (old.members, old.carry) != (new.federation.members, new.federation.carry):
                change(new.federation.members, new.federation.carry)
                undo.callback(change, old.members, old.carry)
        if reread.roles is not None:
            undo.callback(setattr, node.roles, "loaded", node.roles.loaded)
            node.roles.loaded = reread.roles
        await (node.review() if reread.trust is None else node.change_trust(reread.trust))
        undo.pop_all()
    change_level(reread.level, access=new.serve.access_log, requests=new.serve.log_requests)
