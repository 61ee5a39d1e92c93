"""What the scores of held-out pairs tell of a reward model: how often it is right, how sure it may be, and what it is swayed by.

:mod:`.pairs` is what is recorded, :mod:`.report` all measures of it together, each in a file of its own. numpy alone.
"""
