"""Every metric of a training step, said once: its name, its unit, what it means, its usual range, and where the Live page shows it.

``table.py`` has one row per metric; the glossary, the charts and the tiles are made from these rows (CONTRIBUTING.md says how to add
one). The room imports nothing of ours and no library, so that every other room may use it.
"""
