"""What earns reward: from texts to the score that PPO sees. Start with ``scorer.py``, the weighted sum.

``scorer.py`` sums, scales, clips and takes off penalties; ``component.py`` is one component at work, with its errors; ``registry.py``
finds what scores for a kind; ``episodes.py`` is what a component may look at and what it gives; ``errors.py``.

Rooms: ``kinds/`` scores, a file per kind or family of kinds; ``outside/`` talks to what is not ours, a server or a person's own
function. The settings and checks of the kinds are in ``config/reward*.py``.
"""
