"""RLHF Studio: run PPO on language models and watch every token while it trains."""

__version__ = "0.3.0.dev0"
