"""Tunnels: streams, joined hop by hop, that carry one inner connection (section 19)."""
