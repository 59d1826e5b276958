"""What candidates are measured against, one file a kind."""
