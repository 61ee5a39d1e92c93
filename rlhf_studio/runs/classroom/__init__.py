"""A class: what was asked in its rounds, what each student answered, and what is forgotten when it ends, in ``people.db``.

``store.py`` is what others use (:class:`~rlhf_studio.runs.classroom.store.ClassStore`).
"""
