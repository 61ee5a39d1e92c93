"""Taking a run home: weights with a model card, a report in one file, tables, and the way to the hub. docs/export.md tells people.

- :mod:`.command`: a request, carried out in order
- :mod:`.story`: the facts of a run, read once; :mod:`.insights`: what the analyses say of it
- :mod:`.report`: the report as one HTML file; :mod:`.card`: the model card; both draw :mod:`.curves` (:mod:`.svg`, :mod:`.png`)
- :mod:`.replay_page`: the run played back, as one HTML file with the pages' own player (:mod:`.modules`); :mod:`.film`: as a moving picture
- :mod:`.weights`: adapter or full model as an ordinary folder; :mod:`.merging` alone loads torch
- :mod:`.tables`: metrics as CSV; JSON Lines are written by :mod:`rlhf_studio.analysis.logs`
- :mod:`.targets`: files and folders that appear complete or not at all; :mod:`.hub`: the push
- :mod:`.text`, :mod:`.html`: model and data text, made harmless
"""
