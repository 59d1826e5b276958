"""A kernel as an operator for torch, outside of any search: what makes a winner usable."""
