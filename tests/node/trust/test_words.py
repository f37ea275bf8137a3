"""Words for bytes: the list is whole, and a fingerprint is the id's first bytes."""

from parley._crypto.identity import NodeId
from parley._node.trust.words import EVEN, FINGERPRINT_SIZE, ODD, fingerprint, words_of


def test_the_list_is_whole() -> None:
    assert len(set(EVEN)) == len(set(ODD)) == 256
    assert not set(EVEN) & set(ODD)
    assert all(word.isascii() and word.islower() and word.isalpha() for word in EVEN + ODD)


def test_published_examples() -> None:
    # Of the article on the list in Wikipedia: the beginning of a fingerprint of a PGP key.
    data = bytes.fromhex("E582 94F2 E9A2 2748 6E8B 061B 31CC 528F D7FA 3F19")
    assert " ".join(words_of(data)) == (
        "topmost istanbul pluto vagabond treadmill pacific brackish dictator goldfish medusa "
        "afflict bravado chatter revolver dupont midsummer stopwatch whimsical cowbell bottomless"
    )


def test_a_fingerprint_is_the_beginning_of_an_id() -> None:
    node_id = NodeId(bytes.fromhex("E582 94F2 E9A2 2748 6E8B") + bytes(22))
    words = fingerprint(node_id)
    assert words.split() == words_of(node_id[:FINGERPRINT_SIZE])
    assert words == (
        "topmost istanbul pluto vagabond treadmill pacific brackish dictator goldfish medusa"
    )
    other = bytearray(node_id)
    other[FINGERPRINT_SIZE - 1] ^= 1
    assert fingerprint(NodeId(bytes(other))) != words
