"""Judges the doctor and "what did it learn" on runs that were really trained: ``python -m benchmarks.trials``."""
