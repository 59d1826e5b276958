"""Individuals, their lineage, and the files that outlast a run."""
