"""Prediction rounds of a class: what was asked, what each student answered, and what is forgotten when the class ends. All its SQL is here.

``store.py`` is what others use (:class:`~rlhf_studio.runs.classroom.store.ClassStore`). It lies in ``class.db``, beside ``feedback.db`` and
written by the same means: thirty students who answer at once must not make the queue wait, and what is known of students can be
forgotten without touching anything else.
"""
