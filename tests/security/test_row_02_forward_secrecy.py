"""Row 2. Mistake: no forward secrecy, so that stolen long-term keys decrypt recorded sessions.

Promise: a recorded session stays closed even if, after the session, an attacker gets both
identities' private keys, the network key, and everything that a node stored of a later epoch.
test_row_02_memory.py shows that the secrets that would open it are no longer in memory.

See also tests/node/protocol/test_handshake.py::test_ephemeral_keys_and_random_are_fresh. Row 21
covers the leftovers of key updates and rekeys under load.
"""

from dataclasses import dataclass

import pytest

from parley._crypto.registry import NAMES
from tests.reference.recorded import seed
from tests.security.busy_sessions import HYBRID, NETWORK_KEY, OWNERS, busy, make_pair, shares
from tests.security.eavesdropper import (
    Secrets,
    Tape,
    derived,
    followed,
    guesses,
    opened,
)
from tests.security.exchanges import (
    Exchanges,
    veiled,
)

LEAKED = [seed(f"{owner} {name}") for owner in OWNERS for name in NAMES["signing"]]
PRIMARIES = [seed(f"{owner} {NAMES['signing'][0]}") for owner in OWNERS]


@dataclass
class RecordedPair:
    """A finished session: its recorded events, and its shared secrets."""

    tape: Tape
    offer: bytes
    answer: bytes
    network_key: bytes | None


def record(
    kex: str, network_key: bytes | None = None, sealing: str = "chain", **names: str
) -> RecordedPair:
    """Record a whole session, from Hello to Close."""
    suite = {"kex": kex, "sealing": sealing, **names}
    algorithms = {parameter: (name,) for parameter, name in suite.items()}
    tape = Tape()
    pair = make_pair(tape, algorithms=algorithms, network_key=network_key)
    pair.pump()
    busy(pair)
    pair.a.core.close(pair.now)
    pair.pump()
    assert len(tape.events) > 40
    assert len(tape.rekeys) == 2
    offer, answer = (shares(side.wire)[kex] for side in pair.sides)
    return RecordedPair(tape, offer, answer, network_key)


def everything_opens(recorded: RecordedPair, exchanges: Exchanges) -> bool:
    """Check that the two sides' secrets open all of it, so that the eavesdropper lacks only
    these.
    """
    first, *again = map(veiled, exchanges.agreed)
    keys = derived(recorded.tape, first, recorded.network_key, dict(enumerate(again, 1)))
    assert keys == {**keys, **{e: veiled(hidden) for e, hidden in recorded.tape.secrets.items()}}
    return opened(recorded.tape, keys) == recorded.tape.everything


@pytest.mark.parametrize("sealing", NAMES["sealing"])
@pytest.mark.parametrize("network_key", [None, NETWORK_KEY], ids=["open", "network"])
@pytest.mark.parametrize("cipher", NAMES["cipher"])
def test_both_identities_private_keys_open_nothing(
    cipher: str, network_key: bytes | None, sealing: str, exchanges: Exchanges
) -> None:
    recorded = record("x25519", network_key, sealing, cipher=cipher)
    for guess in guesses("x25519", recorded.offer, recorded.answer, LEAKED):
        for key in {None, network_key}:
            assert opened(recorded.tape, derived(recorded.tape, guess, key)) == []
    assert everything_opens(recorded, exchanges)


def test_nor_do_they_open_what_the_hybrid_exchange_protects(exchanges: Exchanges) -> None:
    recorded = record(HYBRID)
    for guess in guesses(HYBRID, recorded.offer, recorded.answer, PRIMARIES):
        assert opened(recorded.tape, derived(recorded.tape, guess)) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("hash_name", NAMES["hash"])
@pytest.mark.parametrize("signing", NAMES["signing"])
def test_whatever_signs_and_hashes_the_keys_do_not_follow_from_it(
    signing: str, hash_name: str, exchanges: Exchanges
) -> None:
    recorded = record("x25519", signing=signing, hash=hash_name)
    for guess in guesses("x25519", recorded.offer, recorded.answer, PRIMARIES):
        assert opened(recorded.tape, derived(recorded.tape, guess)) == []
    assert everything_opens(recorded, exchanges)


def test_one_half_of_the_hybrid_exchange_opens_nothing(exchanges: Exchanges) -> None:
    """The case that X25519 falls to a quantum computer, or ML-KEM to a new attack."""
    recorded = record(HYBRID)
    true = veiled(exchanges.agreed[0])
    post_quantum, classical = true[:32], true[32:]
    for guess in guesses("x25519", recorded.offer[-32:], recorded.answer[-32:], PRIMARIES):
        for secret in (post_quantum + guess, guess + classical, post_quantum, classical):
            assert opened(recorded.tape, derived(recorded.tape, secret)) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_what_a_node_holds_later_opens_no_earlier_epoch(kex: str, exchanges: Exchanges) -> None:
    """An attacker who takes over a node gets its current epochs and those that follow plainly."""
    recorded = record(kex)
    tape = recorded.tape
    numbers = {sent: max(n for s, n in tape.secrets if s == sent) for sent in (True, False)}
    assert min(numbers.values()) >= 3
    for sent in (True, False):
        for number in range(numbers[sent] + 1):
            held: Secrets = {(sent, number): veiled(tape.secrets[sent, number])}
            keys = followed(tape, held, veiled(tape.rekey))
            seen = opened(tape, keys)
            assert {event.epoch for event in seen} == set(keys)
            assert min(keys) == (sent, number)
            # Up to the next rekey; from there on it is closed again.
            rekeyed = [n for s, n in tape.rekeyed_epochs if s == sent and n > number]
            assert max(keys)[1] == min(rekeyed, default=numbers[sent] + 1) - 1
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_all_that_was_known_before_a_rekey_opens_nothing_after_it(
    kex: str, exchanges: Exchanges
) -> None:
    recorded = record(kex)
    tape, true = recorded.tape, veiled(exchanges.agreed[0])
    before = derived(tape, true)
    assert {epoch for epoch in tape.secrets if epoch not in before}
    for guess in guesses(kex, recorded.offer, recorded.answer, [true[:32]]):
        keys = derived(tape, true, again={1: guess, 2: guess})
        later = {epoch: key for epoch, key in keys.items() if epoch not in before}
        assert opened(tape, later) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_ephemeral_keys_are_never_used_again(kex: str, exchanges: Exchanges) -> None:
    """Ephemeral keys don't appear in another session of the same nodes, in a rekey, or on the other
    side.
    """
    sent: list[bytes] = []
    for _ in range(10):
        pair = make_pair(algorithms={"kex": (kex,)})
        pair.pump()
        sent += [shares(side.wire)[kex] for side in pair.sides]
        for _ in range(3):
            pair.a.core.rekey(pair.now)
            pair.pump()
            pair.b.core.rekey(pair.now)
            pair.pump()
    parts = {"x25519": 1 + 1, HYBRID: 3 + 1}[kex]  # drawn by the offerer, by the answerer
    assert len(exchanges.private) == len(set(exchanges.private)) == 10 * 7 * parts
    assert len(exchanges.agreed) == 10 * 7
    assert len(exchanges.shared) == 2 * 10 * 7
    assert len(set(sent)) == 20
    classical = {share[-32:] for share in sent}
    assert len(classical) == 20
