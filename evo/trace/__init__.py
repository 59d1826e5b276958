"""A run as one file that tells its story, and the search made again from that file alone."""
