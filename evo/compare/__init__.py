"""Statistics over runs: what each brought, and whether groups of them differ."""
