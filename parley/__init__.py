"""Parley: a secure peer-to-peer messaging node.

`Node` and `Identity` are where to begin. More is in `parley.blocking`, `bus`, `dialects`, `errors`,
`interceptors`, `journal`, `metrics`, `pipeline`, `protocol`, `settings`, `telemetry`, `testing`,
`transfer` and `trust`; names that begin with an underscore may change at any time. `import
parley` by itself loads nothing else, so that `python -m parley` handles signals before the slow
imports begin.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley._face import *  # noqa: F403 - the names of its __all__
    from parley._face import __all__ as __all__
else:
    from importlib import import_module as _import_module

    def __getattr__(name):
        """A public name, from `parley._face` (PEP 562)."""
        missing = AttributeError(f"module 'parley' has no attribute {name!r}")
        if name.startswith("_") and name != "__all__":
            raise missing
        face = _import_module("parley._face")
        if name != "__all__" and name not in face.__all__:
            raise missing
        return getattr(face, name)

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
