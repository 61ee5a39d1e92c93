"""Scenes of lessons that would be too long in one module; the lesson in :mod:`rlhf_studio.lessons.pages` puts them together."""
