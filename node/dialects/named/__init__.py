"""Named events, byte for byte as in the Rust crate bromine."""
