"""Child processes that are not engines: how this program talks to them, what they may see, and how much memory they may take.

A room of its own below ``inputs`` and ``runs``, because both start such children, and so do the rewards and the app.

- :mod:`.line_process`: the parent's side of the protocol, JSON objects line by line over pipes. Start reading here.
- :mod:`.environment`: the list of variables that a child (an engine too) may see, and the variables that this program itself sets.
- :mod:`.memory`: the memory limit that a child sets for itself.
"""
