"""Where candidates run, one file a kind."""
