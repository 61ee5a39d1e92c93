"""The pages, and who may see and do what on them. Python answers what pages ask; scripts in ``assets/`` draw them.

A question goes from a page's script through :mod:`door` to a function of that page, which reads a store or asks a service.

The frame:

:mod:`app`         builds the pages and serves them; :mod:`services` is what they share
:mod:`door`        every request passes it; :mod:`roles` says who may call what, :mod:`access` who is asking, :mod:`hosts` under which names
:mod:`serving`     below the pages: bodies, replies, caching, the server itself
:mod:`api`         the functions for programs: Gradio's API, MCP, /agents.md
:mod:`visiting`    people who are no operators; :mod:`classroom` for a class, :mod:`hosted` for a Space or a container
:mod:`html`        the one place that makes HTML, and the list of each page's styles; :mod:`theme` is the look
:mod:`sent`        how what a page sends is read; :mod:`once` starts once what is asked for twice; :mod:`jobs` follows a child process

The pages:

:mod:`train_page`  the form: :mod:`form`, :mod:`problems`, :mod:`forecast`, :mod:`outlook`, :mod:`devices`, :mod:`command`
:mod:`picker`      its card for a model of one's own: what can be chosen, folders, uploads, the hub
:mod:`scoring`     a text is scored before there is a run
:mod:`live`        one run as it happens; :mod:`insights` adds what the analyses say
:mod:`runs_page`   all runs; :mod:`lab` compares them and suggests the next ones; :mod:`exports` takes one home
:mod:`resume`      the question before a run starts again from step 0
:mod:`replay`      a run played back
:mod:`talk`, :mod:`feedback`, :mod:`evaluate`, :mod:`road`, :mod:`learn`  a page each
:mod:`help`        a place of Learn: the documents

:mod:`news`        what the bell tells: ends and alarms
:mod:`remembered`  facts that are read once for each run
"""
