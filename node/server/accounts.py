"""The accounts of a server, as its `Directory` asks about them."""

from crypto.identity import NodeId
from node.federation.accounts import Accounts
from node.remote.live import LiveConnection


class AccountsHere:
    """Who may dial here, and who can be reached: whoever is logged in and has a transport."""

    def __init__(self, accounts: Accounts[LiveConnection]) -> None:
        self._accounts = accounts

    def has_account(self, node_id: NodeId) -> bool:
        """Whether a node may have an account here."""
        return self._accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Whether a node is logged in here, and its connection not parted."""
        live = self._accounts.session(node_id)
        return live is not None and live.is_open and not live.is_parted
