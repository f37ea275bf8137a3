"""Named events, byte for byte as the crate bromine speaks them."""
