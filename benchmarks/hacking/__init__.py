"""A benchmark for monitors of reward hacking, on the review world, where the gold reward is exactly known: docs/hacking.md."""
