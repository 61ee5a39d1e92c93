"""Taking a run home: weights with a model card, a report in one file, tables, and the way to the hub. docs/export.md tells people.

- :mod:`.command`: what was asked for, done in order
- :mod:`.story`: what a run has to tell, read once; :mod:`.insights`: what the analyses say of it
- :mod:`.report`: the report as one HTML file; :mod:`.card`: the model card; both draw :mod:`.curves` (:mod:`.svg`, :mod:`.png`)
- :mod:`.weights`: adapter or whole model as an ordinary folder; :mod:`.merging` alone loads torch
- :mod:`.tables`: metrics as CSV; JSON Lines are written by :mod:`rlhf_studio.analysis.logs`
- :mod:`.places`: targets that appear whole or not at all; :mod:`.hub`: the push
- :mod:`.text`, :mod:`.html`: model and data text, made harmless
"""
