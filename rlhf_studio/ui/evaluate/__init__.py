"""The Evaluate page: policies answer the same prompts, side by side.

- :mod:`.page`: what the page can ask and do.
- :mod:`.tables`: reports and answers as the page draws them.
- :mod:`.arena`: blind comparisons.
"""
