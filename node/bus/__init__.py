"""The durable bus: events kept until they are processed, on SQLite, Redis or another node."""
