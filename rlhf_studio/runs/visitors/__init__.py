"""Runs of people who are no operators: who started each, what they may start, and what is cleared away after them."""
