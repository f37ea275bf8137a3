"""Tests of node/federation/accounts.py: permitted accounts, and repeated logins."""

import pytest

from parley._crypto.identity import NodeId
from parley._node.federation import accounts as module
from parley._node.federation.accounts import Accounts
from parley._node.protocol.codes import ResultCode

ALICE, BOB, SERVER = (NodeId(bytes([n]) * 32) for n in (1, 2, 3))


def home(*ids: NodeId) -> Accounts[str]:
    return Accounts(ids)


def test_nobody_has_an_account_by_default() -> None:
    nobody = Accounts[str]()
    assert not nobody.may(ALICE)
    assert nobody.login(ALICE, "a") == ResultCode.NOT_AUTHORISED
    assert nobody.logout(ALICE, "a") == ResultCode.NOT_AUTHORISED
    assert nobody.session(ALICE) is None
    assert len(nobody) == 0


def test_login_and_logout() -> None:
    accounts = home(ALICE)
    assert (accounts.may(ALICE), accounts.may(BOB)) == (True, False)
    assert accounts.session(ALICE) is None
    assert accounts.login(ALICE, "a") == ResultCode.ACCEPTED
    assert accounts.login(BOB, "b") == ResultCode.NOT_AUTHORISED
    assert (accounts.session(ALICE), accounts.session(BOB)) == ("a", None)
    assert list(accounts) == [ALICE]
    assert accounts.logout(ALICE, "a") == ResultCode.ACCEPTED
    assert accounts.session(ALICE) is None
    assert accounts.logout(ALICE, "a") == ResultCode.ACCEPTED  # a second call has no effect


def test_the_newest_login_counts() -> None:
    accounts = home(ALICE)
    accounts.login(ALICE, "old")
    accounts.login(ALICE, "new")
    assert accounts.session(ALICE) == "new"
    assert accounts.logout(ALICE, "old") == ResultCode.ACCEPTED
    assert accounts.session(ALICE) == "new"
    accounts.login(ALICE, "old")
    assert accounts.session(ALICE) == "old"
    assert len(accounts) == 1


def test_anybody() -> None:
    accounts = Accounts[str](None)
    assert accounts.login(BOB, "b") == ResultCode.ACCEPTED
    assert accounts.session(BOB) == "b"


def test_a_linked_server_has_no_account() -> None:
    linked: set[NodeId] = set()
    accounts = Accounts[str](None, linked)
    accounts.login(SERVER, "s")
    linked.add(SERVER)  # linked afterwards
    assert not accounts.may(SERVER)
    assert accounts.session(SERVER) is None
    assert list(accounts) == []
    assert accounts.login(SERVER, "s") == ResultCode.NOT_AUTHORISED
    linked.clear()
    assert accounts.session(SERVER) == "s"


def test_removed_account_is_logged_out() -> None:
    accounts = home(ALICE, BOB)
    accounts.login(ALICE, "a")
    accounts.login(BOB, "b")
    assert accounts.change([ALICE]) == ["b"]
    assert (accounts.session(ALICE), accounts.session(BOB)) == ("a", None)
    assert accounts.change([ALICE, BOB]) == []
    assert accounts.session(BOB) is None  # it has to log in again
    assert accounts.change(None) == []
    assert accounts.change(()) == ["a"]


def test_so_many_are_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOGGED_IN", 2)
    accounts = Accounts[str](None)
    assert accounts.login(ALICE, "a") == accounts.login(BOB, "b") == ResultCode.ACCEPTED
    assert accounts.login(SERVER, "s") == ResultCode.OVERLOADED
    assert accounts.login(ALICE, "a2") == ResultCode.ACCEPTED  # without using another place
    accounts.logout(BOB, "b")
    assert accounts.login(SERVER, "s") == ResultCode.ACCEPTED


def test_an_ended_id_has_no_account() -> None:
    accounts = Accounts[str](None)
    accounts.login(ALICE, "a")
    accounts.login(BOB, "b")
    assert accounts.change(None, {ALICE}) == ["a"]
    assert (accounts.may(ALICE), accounts.may(BOB)) == (False, True)
    assert accounts.login(ALICE, "a") == ResultCode.NOT_AUTHORISED
    assert accounts.logout(ALICE, "a") == ResultCode.NOT_AUTHORISED
