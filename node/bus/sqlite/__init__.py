"""The bus in one SQLite file."""
