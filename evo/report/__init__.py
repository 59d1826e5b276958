"""A run as a page: what happened in it, in pictures and tables, once or live."""
