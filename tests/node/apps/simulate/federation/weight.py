"""What a part of a program weighs: the memory of it and of all that it holds."""

import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

_SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def weigh(root: Any) -> int:
    """Bytes of an object and of what it refers to, each object once; code is not counted.

    What several hold is counted for whoever is asked about, as if it had no other holder.
    """
    seen: set[int] = set()
    total = 0
    left = [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, _SHARED):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        left.extend(gc.get_referents(thing))
    return total
