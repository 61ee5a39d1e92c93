"""A reward model before and after its training: building it (build.py), measuring it (measure.py, rewrites.py), normalising and saving it
(finish.py). The training itself is that of all supervised stages.
"""
