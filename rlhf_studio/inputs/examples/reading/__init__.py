"""Rows of a source become demonstrations or pairs.

:mod:`shapes`          which columns hold what, and how a shape is recognised
:mod:`table`           rows of a source, bounded, as the cells of the shape's parts
:mod:`world`           the review world's own examples, written from its seeds
:mod:`demonstrations`  rows become examples to imitate
:mod:`pairs`           rows become pairs of responses
:mod:`rated`           the same, where each response has a rating
:mod:`notes`           what a person should know of a source
"""
