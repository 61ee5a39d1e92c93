"""From TRL's PPO to this program: the table of options, the page made from it, and a converter for what people wrote for TRL."""
