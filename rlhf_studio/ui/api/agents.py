"""``/agents.md``: how an agent uses this app, made from the functions for programs themselves."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlhf_studio.ui import roles
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.api.asked import parameters_of
from rlhf_studio.ui.api.opening import Program, about, arguments_of
from rlhf_studio.ui.roles import Role, rule_of
from rlhf_studio.ui.visiting.modes import Mode

_TYPES = {str: "text", int: "whole number", float: "number"}

_PAGE = """# RLHF Studio, for agents

This app trains language models with reinforcement learning (supervised fine-tuning, reward models, PPO, evaluation) and shows every token.
You can start a run, wait for it, read what the doctor says of it, and start a better one. Every answer is the text of a JSON object.

## A session

1. `list_recipes`, then `check_settings` with the recipe and your settings: it tells time, memory and what is wrong. It starts nothing.
2. `start_training` gives the run's id. Give a `request_id` of your own, so that asking again starts nothing twice.
3. `wait_for_run` until `ended` is true. `run_status` and `run_metrics` look at a run while it goes on.
4. `run_diagnosis`: the verdict, findings with evidence, and `fork` or `next` with settings. Read responses with `run_samples`: a score that
   rises while the texts become worse is the commonest trap.
5. `fork_run` with the doctor's settings makes a new run; go on with step 3.

## Who may do what

{who} Everybody else who may reach the app reads. The token is shown in the header `Authorization: Bearer TOKEN` or `{header}: TOKEN`.
A refusal says why. Never send a file: settings are the text of a JSON object.

## How to call

Python (`pip install gradio_client`):

```python
from gradio_client import Client
import json

app = Client("{address}", headers={{"Authorization": "Bearer TOKEN"}})
run = json.loads(app.predict("world", '{{"ppo.steps": 20}}', api_name="/start_training"))["run"]
```

HTTP: the first request gives an `event_id`, the second one the answer as a stream that ends with `event: complete`, or `event: error`.

```sh
curl -s {address}gradio_api/call/v2/run_status -H "Content-Type: application/json" -d '{{"run": "RUN"}}'
curl -sN {address}gradio_api/call/run_status/EVENT_ID
```

{mcp}

## Functions

{functions}
"""
_MCP = "MCP: `{address}gradio_api/mcp/` (streamable HTTP; the tools are named as the functions below{prefix})."
_NO_MCP = 'MCP: not on here. Whoever runs the app starts it with `--mcp`, which needs `pip install "gradio[mcp]"`.'


def agents_route(functions: Sequence[Program], access: Access, mcp: bool, tool_prefix: str = "") -> Route:
    """The route of ``/agents.md``. ``mcp``: whether the app is an MCP server; ``tool_prefix``: what stands before the tools' names."""
    listed = "\n\n".join(_described(function, access.mode) for function in functions)

    async def agents(request: Request) -> Response:
        address = access.address.rstrip("/") + "/" if access.address else _address_of(request)
        prefix = f", with {tool_prefix} before each" if tool_prefix else ""
        told = _MCP.format(address=address, prefix=prefix) if mcp else _NO_MCP
        page = _PAGE.format(address=address, header="X-RLHF-Studio-Token", who=_who(access), functions=listed, mcp=told)
        return Response(page, media_type="text/markdown", headers={"Cache-Control": "no-store"})

    return Route(roles.AGENTS_ROUTE, agents, methods=["GET"])


def _address_of(request: Request) -> str:
    """The app's address as the agent has asked for it; the door has checked the name."""
    secure = request.headers.get("x-forwarded-proto", "").split(",")[0].strip() == "https"
    return str(request.base_url.replace(scheme="https") if secure else request.base_url)


def _who(access: Access) -> str:
    if access.read_only:
        return "This app is read-only: nobody starts or stops anything."
    alone = " whoever uses this machine directly, without a token, and" if access.loopback and not access.token_only else ""
    play = " Visitors start and stop small runs of their own." if access.mode.visitors_play else ""
    return f"Starting, stopping, forking and scoring are for operators:{alone} whoever shows the operator's token.{play}"


def _described(function: Program, mode: Mode) -> str:
    given, texts = parameters_of(function), arguments_of(function)
    rows = [f"- `{part.name}` ({_TYPES[part.annotation]}{_default(part)}): {texts[part.name]}" for part in given]
    role = "operators" if rule_of(function).role_in(mode) >= Role.PLAYER else "everybody"
    return "\n".join([f"### {function.__name__}", "", f"{about(function)} For {role}.", *([""] if rows else []), *rows])


def _default(part: inspect.Parameter) -> str:
    return "" if part.default is inspect.Parameter.empty else f", default {json.dumps(part.default)}"
