"""The types of ASGI (version 3.0), as the server and its applications speak it.

Values are held to nothing here: h11 refuses what is no HTTP.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# What is served: Starlette's applications, and any other.
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
