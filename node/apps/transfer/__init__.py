"""Files from one node to another: `parley send` and `parley receive`, and their parts.

What arrives is either the whole file that was offered, by its SHA-256, or not there under its name.
"""

from node.apps.transfer.protocol import FileOffer, Receipt, RefusalCode
from node.apps.transfer.receiver import FileReceiver
from node.apps.transfer.sender import Source, send_file
from node.apps.transfer.store import FileStore
from node.apps.transfer.watcher import Watcher

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
