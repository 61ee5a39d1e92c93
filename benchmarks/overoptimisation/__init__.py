"""Overoptimisation of reward models after Gao, Schulman and Hilton 2022 (arXiv:2210.10760), where gold is known: docs/overoptimisation.md."""
