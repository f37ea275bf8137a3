"""File transfer between nodes, as in `parley send` and `parley receive`."""

from parley._node.apps.transfer.progress import Transfer, Watcher
from parley._node.apps.transfer.protocol import FileOffer, Receipt, RefusalCode
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.sender import Source, send_file
from parley._node.apps.transfer.store import FileStore

__all__ = [
    "FileOffer",
    "FileReceiver",
    "FileStore",
    "Receipt",
    "RefusalCode",
    "Source",
    "Transfer",
    "Watcher",
    "send_file",
]
