"""What a handler sees of the other side, and the connection it speaks on."""
