"""Announcing nodes on the local network, and finding them; it needs the extra `discovery`."""

from node.discovery.announcement import FoundNode
from node.discovery.discovery import Announced, announce, find, resolve

__all__ = [
    "Announced",
    "FoundNode",
    "announce",
    "find",
    "resolve",
]
