"""Those who answer a question about a kernel, one file a kind."""
