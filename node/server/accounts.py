"""The accounts of a server, as its `Directory` asks about them, and their sessions."""

from typing import cast

from parley._crypto.identity import NodeId
from parley._node.federation.accounts import Accounts
from parley._node.peer.peer import Peer
from parley._node.remote.live import LiveConnection


class AccountsHere:
    """Who may dial here, and who can be reached: whoever is logged in and has a transport."""

    def __init__(self, accounts: Accounts[LiveConnection]) -> None:
        self._accounts = accounts

    def has_account(self, node_id: NodeId) -> bool:
        """Whether a node may have an account here."""
        return self._accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Whether a node is logged in here, and its connection not parted."""
        return self.peer(node_id) is not None

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session over which a node is reached, if it is."""
        live = self._accounts.session(node_id)
        if live is None or not live.is_open or live.is_parted:
            return None
        return cast(Peer, live.remote)
