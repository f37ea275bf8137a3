"""Federation without I/O: cards, paths, dials, accounts (docs/protocol.md section 19)."""
