"""What a node counts of itself, and the families of samples that it is read as."""
