"""The documents, and what makes the reference pages among them."""
