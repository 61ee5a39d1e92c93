"""How much memory a run needs, part by part, before anything is loaded.

:mod:`parts`    the parts' names, what each one is, and the record of one part's size
:mod:`lasting`  the parts that are held from loading to the end: weights, gradients, the optimizer
:mod:`phases`   the parts that are held while one phase runs: sampling, scoring, learning
:mod:`total`    all parts together, and whether they fit: start here
:mod:`savings`  what a change of one setting saves

Every size is a range. Weights, gradients and the optimizer are exact; what a forward or backward pass needs while it runs depends on the
real prompt lengths and on the memory allocator. docs/planner.md gives the formulas, and how close they come to measured runs.
"""
