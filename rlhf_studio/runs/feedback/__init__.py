"""Human feedback: tasks for people, their items, who gets which next, and what was answered, in ``people.db``.

``store.py`` is what others use (:class:`~rlhf_studio.runs.feedback.store.Feedback`); ``exchange.py`` reads items and writes answers.
"""
