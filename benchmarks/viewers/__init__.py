"""What watching and recording cost a run. Start at ``__main__``."""
