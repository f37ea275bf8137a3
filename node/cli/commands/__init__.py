"""Declarations of all commands and their options, from which click makes help and completion."""
