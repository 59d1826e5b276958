"""The questions, and which of them to ask when."""
