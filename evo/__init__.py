"""The search: questions in, candidates out, and the loop that keeps the best."""
