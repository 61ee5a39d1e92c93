"""What did the policy learn? Phrases, habits, disagreements of judges, and tokens that became likelier, from a run's records.

:func:`what_was_learned` answers for a run as it is; :class:`Learning` is for one that goes on.
"""

from rlhf_studio.analysis.learned.learning import Learning, what_was_learned

__all__ = ["Learning", "what_was_learned"]
