"""How `parley` begins: `python -m parley` is the same.

Its name is no other package's, so it can also tell when another one stands where one of
ours should (`parley.shadows`). It imports nothing: what programs import is `node`.
"""
