"""Who gets in: limits before the handshake, trust and hooks after it, and what is logged."""
