"""`parley doctor`: what is wrong or weak here, and with a node that can be reached."""
