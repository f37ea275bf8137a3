"""Parley: a secure peer-to-peer messaging node.

Start with `Node` and `Identity`. The other public modules are `parley.blocking`, `bus`, `codes`,
`console`, `dialects`, `discovery`, `errors`, `federation`, `interceptors`, `journal`, `metrics`,
`pipeline`, `protocol`, `settings`, `telemetry`, `testing`, `transfer` and `trust`. Names that begin
with an underscore are private and may change at any time.

`import parley` alone imports nothing else, so that `python -m parley` can handle signals before the
slow imports begin.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley._face import *  # noqa: F403 - the names of its __all__
    from parley._face import __all__ as __all__
else:
    from importlib import import_module as _import_module

    def __getattr__(name):
        """Return a public name of `parley._face` (PEP 562)."""
        missing = AttributeError(f"module 'parley' has no attribute {name!r}")
        if name.startswith("_") and name != "__all__":
            raise missing
        face = _import_module("parley._face")
        if name != "__all__" and name not in face.__all__:
            raise missing
        return getattr(face, name)

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
