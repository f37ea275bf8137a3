"""The console: a page on which an operator sees what a node does, and may do a few things to it."""
