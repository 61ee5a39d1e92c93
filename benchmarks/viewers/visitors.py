"""Visitors of a Space as programs: they open the page, keep or drop their cookies, start runs, and send what nobody should send."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from benchmarks.viewers.page import Viewer
from rlhf_studio.recipes import load_recipe
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.roles import Role, role_for
from rlhf_studio.ui.visiting.modes import Mode

COOKIE = "rlhf_studio_visitor"
PROXIES = "10.16.3.80, 10.16.4.1"  # inside the Space, behind the one that sees the visitor
PATIENCE = 60.0
PACE = 2.5
HOSTILE: tuple[Any, ...] = (
    "<img src=x onerror=alert(1)>",
    "${alert(1)} {{x}}",
    "'; DROP TABLE queue; --",
    "../../../../etc/passwd",
    "\x00\x1b[2J\r\nINFO forged",
    "\u202eabc\u200b",
    "a" + "\u0301" * 3000,
    "(a+)+$",
    "w" * 50_000,
    -1,
    2**53,
    1e308,
    None,
    True,
    [],
    {},
    [[[[[[]]]]]],
    {"__proto__": {"x": 1}},
)
NAMES = (
    "run",
    "kind",
    "step",
    "sample",
    "name",
    "note",
    "text",
    "query",
    "show",
    "seed",
    "values",
    "basis",
    "parent",
    "task",
    "id",
    "secret",
)
ODD = {
    "ppo.steps": (1, 2, 3, 2, 1, 40, 41, 0, -1, 1e9, "many", None),
    "ppo.learning_rate": (1e-5, 1e-3, 0, -1, 1e300, "x"),
    "ppo.kl_coef": (0.05, 0.0, 5.0, -3),
    "ppo.batch_size": (64, 32, 65, 10**9),
    "generation.temperature": (0.7, 1.0, 0.01, 0, 100),
    "generation.response_length": (8, 16, 33),
    "model.policy": ("/etc", "../..", "someone/model"),
}


@dataclass
class Noted:
    """What all of them saw."""

    pages: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Tab(Viewer):
    """An open page that asks what is new: mostly Live, of no run or of one that is not there, and sometimes the table of runs."""

    table = 0  # the number of the Runs page's component

    async def _turn(self) -> float:
        if random.random() < 0.2:
            began = time.perf_counter()
            live, self._component = self._component, self.table
            try:
                await self._ask("runs", {"version": "", "view": False})
            finally:
                self._component = live
            self._seen.latencies.append(time.perf_counter() - began)
        else:
            self._run = random.choice(("", f"none-{random.randrange(50)}"))
            await self._poll()
        return PACE


class App:
    """The addresses of an app, and what a visitor may ask there."""

    def __init__(self, port: int, config: dict[str, Any]) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.start = next(event["id"] for event in config["dependencies"] if event["api_name"] == "start_run")
        pages = {part["props"].get("elem_id"): part for part in config["components"] if part["props"].get("server_fns")}
        self.live, self.runs = pages["live-page"]["id"], pages["runs-page"]["id"]
        self.open = [
            (part["id"], f"{page}.{name}")
            for page, part in pages.items()
            for name in part["props"]["server_fns"]
            if role_for(f"{page}.{name}", Mode.SPACE) <= Role.PLAYER
        ]


def address() -> str:
    """A public address, as the outermost proxy writes it."""
    return ".".join(str(random.randrange(20, 90)) for _ in range(4))


class Visitor:
    """One person: the cookie that the app gave with the page, an address, and a connection of their own."""

    def __init__(self, app: App, noted: Noted, *, at: str = "", forges: bool = False, cookie: bool = True) -> None:
        self._app, self._noted, self._at, self._forges, self._keeps = app, noted, at or address(), forges, cookie
        self._cookie = ""  # the app gives one with the page; until then the address is the person
        self._client = httpx.AsyncClient(base_url=app.root, timeout=PATIENCE, trust_env=False, verify=False)  # no TLS here

    async def __aenter__(self) -> Visitor:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._client.aclose()

    def _headers(self) -> dict[str, str]:
        told = f"{address()}, {self._at}" if self._forges else self._at
        return {"X-Forwarded-For": f"{told}, {PROXIES}", "Cookie": self._cookie}

    async def load(self) -> None:
        """Open the page."""
        began = time.perf_counter()
        for path in ("/", "/config"):
            answer = await self._client.get(path, headers={"X-Forwarded-For": f"{self._at}, {PROXIES}"})
            if self._keeps and COOKIE in answer.headers.get("set-cookie", ""):
                self._cookie = answer.headers["set-cookie"].split(";")[0]
            self._noted.statuses[f"page {answer.status_code}"] += 1
        self._noted.pages.append(time.perf_counter() - began)

    async def start(self, odd: dict[str, Any]) -> str:
        """Press Start with the recipe's settings and these; what came of it: a run's id, or why not."""
        values = {**_values(), "ppo.steps": random.choice((1, 2, 3)), **odd}
        session, began, headers = secrets.token_hex(8), time.perf_counter(), self._headers()
        sent = {"values": values, "basis": "world", "nonce": secrets.token_hex(8)}
        body = {"data": [], "event_data": sent, "fn_index": self._app.start, "trigger_id": None, "session_hash": session}
        joined = await self._client.post("/gradio_api/queue/join", json=body, headers=headers)
        if joined.status_code != 200:
            return self._came_of(f"HTTP {joined.status_code}")
        async with self._client.stream("GET", f"/gradio_api/queue/data?session_hash={session}", headers=headers) as answer:
            async for line in answer.aiter_lines():
                message = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                if message.get("msg") == "process_completed":
                    self._noted.starts.append(time.perf_counter() - began)
                    if not message["success"]:
                        return self._came_of("error")
                    outcome = json.loads(message["output"]["data"][0])
                    if "run_id" in outcome:
                        self._came_of("started")
                        return str(outcome["run_id"])
                    return self._came_of(_why(outcome["problems"][0]["message"]))
        return self._came_of("no answer")

    def _came_of(self, what: str) -> str:
        self._noted.outcomes[what] += 1
        return what

    async def send_garbage(self) -> None:
        """Something hostile to one of the functions that a visitor may ask."""
        component, name = random.choice(self._app.open)
        data = {key: random.choice(HOSTILE) for key in random.sample(NAMES, 6)} if random.random() < 0.9 else random.choice(HOSTILE)
        body = {"data": data, "component_id": component, "fn_name": name.partition(".")[2], "session_hash": secrets.token_hex(8)}
        text = json.dumps(body).encode()
        headers = {**self._headers(), "Content-Type": "application/json"}
        answer = await self._client.post("/gradio_api/component_server/", content=text, headers=headers)
        self._noted.statuses[f"garbage {answer.status_code}"] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self._noted.problems.append(f"{name} answered {answer.status_code} to {text[:200]!r}")


@cache
def _values() -> dict[str, Any]:
    return dict(values_of(load_recipe("world").config))


def odd_settings() -> dict[str, Any]:
    """Some settings around what is allowed, and a name that is hostile."""
    odd = {name: random.choice(values) for name, values in ODD.items() if random.random() < 0.15}
    return {**odd, "name": random.choice(HOSTILE)} if random.random() < 0.5 else odd


def _why(message: str) -> str:
    reasons = {"queue is full": "queue full", "Your run": "one run each", "network address": "six for an address"}
    return next((short for words, short in reasons.items() if words in message), "settings refused")
