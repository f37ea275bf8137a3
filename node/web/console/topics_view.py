"""What the console shows of a node's topics and of its journal: plain data."""

from itertools import islice
from typing import Any, Final

from parley._node.journal.journal import Journal
from parley._node.node import Node
from parley._node.web.console.text import shown

MOST_TOPICS: Final = 500


def topics_view(node: Node) -> dict[str, Any]:
    """The topics that it publishes. `dropped` are notes that subscribers lost, in all; `waiting`
    bytes that wait for them now."""
    rows = []
    for topic in islice(node.topics.values(), MOST_TOPICS):
        subscribers = topic.subscribers
        rows.append(
            {
                "name": shown(topic.name),
                "subscribers": len(subscribers),
                "waiting": sum(one.waiting_bytes for one in subscribers),
                "behind": sum(one.behind for one in subscribers),
                "dropped": topic.dropped,
                "kept": topic.kept,
                "kept_bytes": topic.kept_bytes,
            }
        )
    return {"total": len(node.topics), "rows": rows}


def journal_view(journal: Journal | None) -> dict[str, Any] | None:
    """The journal, if it keeps one; `failed` says why nothing is written any more."""
    if journal is None:
        return None
    settings = journal.settings
    return {
        **journal.metrics._asdict(),
        "directory": shown(journal.directory),
        "segment": None if journal.path is None else shown(journal.path.name),
        "running": journal.is_running,
        "failed": None if journal.failed is None else shown(journal.failed),
        "on_failure": settings.on_failure,
        "fsync": settings.fsync,
        "fsync_interval": settings.fsync_interval,
        "buffer_size": settings.buffer_size,
        "segment_size": settings.segment_size,
        "auditors": [shown(key.text) for key in settings.auditors],
        "recovered": [
            {"name": shown(one.name), "records": one.records, "damaged": one.damaged}
            for one in islice(journal.recovered, MOST_TOPICS)
        ],
    }
