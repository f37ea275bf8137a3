"""Announcing nodes on the local network, and finding them; it needs the extra `discovery`."""

from node.discovery.announcement import FoundNode
from node.discovery.discovery import announce, find, resolve

__all__ = ["FoundNode", "announce", "find", "resolve"]
