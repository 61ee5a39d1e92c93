"""What watching costs a run. Start at ``__main__``."""
