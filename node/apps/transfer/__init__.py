"""Files from one node to another: `parley send` and `parley receive`, and the parts of them.

One rule: what arrives is either the whole file that was offered, by its SHA-256, or not
there under its name. Who connects and whom to trust is the node's.
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
