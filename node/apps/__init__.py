"""Applications made of a node: the commands of the same names run them."""
