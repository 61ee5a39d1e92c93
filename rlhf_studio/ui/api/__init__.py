"""A door for programs: named functions of Gradio's own API, for ``gradio_client``, for curl and for MCP, and ``/agents.md`` about them.

:mod:`calling`    who may call, in what turn, and how errors are said
:mod:`asked`      what programs send: texts and numbers, and settings as the text of a JSON object
:mod:`watching`   the functions that change nothing
:mod:`acting`     those that start, stop and score
:mod:`answers`    what they answer, as plain data
:mod:`opening`    gives them to Gradio
:mod:`agents`     the page for agents, made from the functions themselves

They call what the pages call: what holds for a page (limits, the queue, a visitor's runs) holds for a program.
"""
