"""What an agent does, by MCP: run by ``test_mcp.py`` in an environment that has the package ``mcp``. Prints what it learned as JSON.

python tests/api/agent.py ADDRESS TOKEN FILE
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

SMALL = {"ppo.steps": 2, "ppo.batch_size": 8, "ppo.mini_batch_size": 8, "generation.response_length": 8, "engine.watch_prompts": 0}
SMALL |= {"engine.probe_prompts": 0, "engine.checkpoint_every": 1}


@asynccontextmanager
async def session_of(address: str, token: str = "") -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with streamablehttp_client(address, headers=headers) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def text_of(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    return " ".join(part.text for part in result.content)


async def main(address: str, token: str, file: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    async with session_of(address, token) as session:

        async def ask(tool: str, **arguments: Any) -> Any:
            return json.loads(await text_of(session, tool, **arguments))

        told["tools"] = {tool.name: tool.description for tool in (await session.list_tools()).tools}
        assert "ppo.kl_coef" in (await ask("list_recipes", recipe="world"))["settings"]
        assert (await ask("check_settings", recipe="world", settings=json.dumps(SMALL)))["can_start"]
        run = (await ask("start_training", recipe="world", settings=json.dumps(SMALL)))["run"]
        while not (status := await ask("wait_for_run", run=run, seconds=20))["ended"]:
            pass
        diagnosis = await ask("run_diagnosis", run=run)
        advice = next(finding["fork"] for finding in diagnosis["findings"] if finding["fork"])
        told |= {"status": status, "verdict": diagnosis["verdict"], "tokens": (await ask("run_samples", run=run, sample=0))["tokens"]}
        told["fork"] = await ask("fork_run", run=run, step=1, settings='{"ppo.learning_rate": 0.0001, "ppo.steps": 3}', name="longer")
        assert advice["settings"] and (await ask("stop_training", run=told["fork"]["run"]))["asked"] == "stop"
        told["wrong"] = await text_of(session, "run_status", run="nothing")
    async with session_of(address) as viewer:
        told["viewer_reads"] = len(json.loads(await text_of(viewer, "list_runs"))["runs"])
        told["viewer_starts"] = await text_of(viewer, "start_training", recipe="world", settings=json.dumps(SMALL))
    told["tricks"] = [await tricked(address, token, file, shape) for shape in ("run", "settings")]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    told["foreign"] = httpx.post(address, json=body, headers={**accept, "Origin": "https://evil.example"}).status_code
    told["foreign_host"] = httpx.post(address, json=body, headers={**accept, "Host": "evil.example"}).status_code
    return told


async def tricked(address: str, token: str, file: str, argument: str) -> str:
    """What comes back for an argument that Gradio would take for a file of the server, sent past the client's own checks."""
    trick = {"path": file, "meta": {"_type": "gradio.FileData"}}
    tool = "run_status" if argument == "run" else "check_settings"
    call = {"name": tool, "arguments": {"recipe": "world", argument: trick}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    answer = httpx.post(address, json=body, headers=headers)
    assert answer.status_code == 400, answer.text
    text = json.dumps({**body, "params": {"name": tool, "arguments": {"recipe": "world", argument: json.dumps(trick)}}})
    return answer.text + httpx.post(address, content=text, headers={**headers, "Content-Type": "application/json"}).text


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
