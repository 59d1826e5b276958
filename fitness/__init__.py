"""Judging a kernel: compile, check, time, score."""
