"""Metrics of a node, and their exporters."""
