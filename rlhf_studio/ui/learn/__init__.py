"""The Learn page: texts of lessons from :mod:`rlhf_studio.lessons.shelf`, numbers from a process of its own."""
