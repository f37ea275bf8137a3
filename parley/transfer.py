"""Files from one node to another, as `parley send` and `parley receive` carry them."""

from node.apps.transfer import (
    Offer,
    Receipt,
    Receiver,
    RefusalCode,
    Source,
    Store,
    Watcher,
    send_file,
)

__all__ = [
    "Offer",
    "Receipt",
    "Receiver",
    "RefusalCode",
    "Source",
    "Store",
    "Watcher",
    "send_file",
]
