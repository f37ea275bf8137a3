"""How `parley` begins: `python -m parley_node` is the same.

Its name is no other package's, so it can also tell when another one stands where one of
ours should (`parley_node.shadows`). It imports nothing: what programs import is `node`.
"""
