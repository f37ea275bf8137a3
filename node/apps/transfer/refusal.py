"""Why a receiver will not have a file, on its way from where that is found to the sender.

One rule: the text is fixed but for numbers: nothing of the receiver's disk is told.
"""

import errno

from node.apps.transfer.protocol import RefusalCode
from node.errors import ParleyError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Refusal(ParleyError):
    """The sender is told `code` and `text`."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def storage_refusal(error: OSError) -> Refusal:
    """What a sender is told when the disk fails."""
    if error.errno in _FULL:
        return Refusal(RefusalCode.NO_SPACE, "the disk has no room for it")
    return Refusal(RefusalCode.STORAGE, "it cannot be written there")
