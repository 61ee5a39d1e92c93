"""Human feedback: tasks for people, their items, who gets which next, and what was answered. All its SQL is here.

``store.py`` is what others use (:class:`~rlhf_studio.runs.feedback.store.Feedback`). It lies in a database of its own,
``feedback.db`` beside ``studio.db``: thirty people who vote write all the time, and must not make the queue wait; a damaged queue
can be moved away without losing what people answered; and an engine that asks people for ratings writes here, but never into
``studio.db``.
"""
