"""The lessons: a module and its texts each. ``NUMBER`` is the place in the list."""
