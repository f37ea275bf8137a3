"""The console: a web page on which an operator monitors a node and can run a few actions."""
