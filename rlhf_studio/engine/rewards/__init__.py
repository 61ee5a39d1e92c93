"""Reward sources: a reward model, rules, and the scorer that sums them."""
