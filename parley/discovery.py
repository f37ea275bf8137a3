"""Announce nodes on the local network and find them; requires the `discovery` extra."""

from parley._node.discovery.announcement import FoundNode
from parley._node.discovery.discovery import Announced, announce, find, resolve

__all__ = [
    "Announced",
    "FoundNode",
    "announce",
    "find",
    "resolve",
]
