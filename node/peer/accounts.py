"""Whether one peer may log in here, and that it is logged out with the end of its session
(section 20).
"""

import logging
from collections.abc import Sequence

from parley._node.handlers.registry import Handlers
from parley._node.logs import one_line
from parley._node.protocol.codes import ResultCode
from parley._node.remote.live_connection import LiveConnection

logger = logging.getLogger("parley.accounts")


class AccountHandlers:
    """The account of one peer, if its node is a home and it may have one."""

    __slots__ = ("_handlers", "_live")

    def __init__(self, live: LiveConnection, handlers: Handlers) -> None:
        self._live = live
        self._handlers = handlers

    def decide(self, exports: Sequence[str] | None) -> ResultCode:
        """Take a Login with these exports, or with None a Logout; the code that answers it. Nobody
        logs in through a tunnel: an account is reached over its link alone."""
        live, accounts = self._live, self._handlers.accounts
        who = live.node_id
        if accounts is None or who is None or live.path:
            return ResultCode.NOT_AUTHORISED
        if exports is None:
            return accounts.logout(who, live)
        if live.draining:
            return ResultCode.OVERLOADED
        code = accounts.login(who, live)
        if code == ResultCode.ACCEPTED:
            named = one_line(", ".join(exports)) or "nothing"
            now, text = live.backend.now(), "%s logged in, and exports %s"
            self._handlers.logins.log(
                logger,
                logging.INFO,
                now,
                text,
                who,
                named,
                extra={"event": "account.login", "peer": who},
            )
        return code

    def connection_ended(self) -> None:
        """Its session is over."""
        accounts, who = self._handlers.accounts, self._live.node_id
        if accounts is not None and who is not None:
            accounts.logout(who, self._live)
