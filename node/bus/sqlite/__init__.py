"""A bus in one SQLite file."""
