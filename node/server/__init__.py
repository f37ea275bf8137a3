"""Servers: links to other servers, their cards, accounts, and followed topics."""
