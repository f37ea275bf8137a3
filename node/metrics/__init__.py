"""What a node counts of itself: plain numbers, and the families of samples that they are read as."""
