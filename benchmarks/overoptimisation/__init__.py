"""Overoptimisation of reward models where gold is known, after arXiv:2210.10760: docs/overoptimisation.md."""
