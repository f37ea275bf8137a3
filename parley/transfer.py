"""Files from one node to another, as `parley send` and `parley receive` carry them."""

from node.apps.transfer import (
    FileOffer,
    FileReceiver,
    FileStore,
    Receipt,
    RefusalCode,
    Source,
    Watcher,
    send_file,
)

__all__ = [
    "FileOffer",
    "FileReceiver",
    "FileStore",
    "Receipt",
    "RefusalCode",
    "Source",
    "Watcher",
    "send_file",
]
