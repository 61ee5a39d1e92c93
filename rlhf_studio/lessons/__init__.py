"""Lessons: PPO explained by its own running code. Every number on these pages is computed when it is shown, by the engine's functions.

- :mod:`.pages`: the lessons. Each is a module with its scenes, and beside it a text per language (``clip.py``, ``clip.en.md``).
- :mod:`.tour`: stations along a step of the engine, in the same form.
- :mod:`.kit`: what a lesson is made of: scenes, controls, pictures, texts with slots for numbers.
- :mod:`.shelf`: which lessons there are. Reads no lesson's module, so torch is not loaded.
- :mod:`.answers`: the numbers of a scene. :mod:`.server` is the process that computes them for the app.
"""
