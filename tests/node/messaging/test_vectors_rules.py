"""rules.json, and the rules of batch.json: exchanges on an open connection, step by step."""

from tests.node.messaging.exchange import follow
from tests.vectors.load import Vector, of_kind, vectors


@vectors("rules")
def test_a_rule(vector: Vector) -> None:
    follow(vector)


@vectors("batch", of_kind("rule"))
def test_a_rule_of_batches(vector: Vector) -> None:
    follow(vector)
