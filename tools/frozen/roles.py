"""Part 4: who may call what in each mode, by raw HTTP: functions and addresses x people x modes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tools.frozen.running import Checkout, write
from tools.frozen.serving import CLASS, MODES, OPERATOR, RATER_HEADER, SPACE, TOKEN_HEADER, App, served
from tools.frozen.weights import unpack_archive

RUN = "ppo-stopped"  # an operator's: nobody else may change it
ADDRESSES = Path(__file__).with_name("addresses.txt")


def collect(checkout: Checkout, out: Path) -> None:
    """Writes ``roles/MODE.json``: what each person got for each function, with nothing and with somebody else's run, and each address."""
    workspace = unpack_archive(checkout.work / "old")
    with served(checkout, workspace) as app:
        rating = app.ask("feedback-page.rating_link", {})["token"]
    for mode in MODES:
        with served(checkout, _copy(workspace, mode), mode) as app:
            write(out / "roles" / f"{mode}.json", _table(checkout, app, people_of(app, mode, rating)))
    with served(checkout, _copy(workspace, "open"), token="") as app:  # whoever sits at this machine is an operator
        around = {"at this machine": {}, "through a proxy": {"X-Forwarded-For": "10.0.0.9"}, "a foreign name": {"Host": "evil.example"}}
        write(out / "roles" / "local without a token.json", _table(checkout, app, around))


def _copy(workspace: Path, name: str) -> Path:
    return Path(shutil.copytree(workspace, workspace.with_name(name)))


def people_of(app: App, mode: str, rating: str) -> dict[str, dict[str, str]]:
    """The headers of everybody that there is in a mode."""
    people = {
        "a foreign page": {"Sec-Fetch-Site": "cross-site", TOKEN_HEADER: OPERATOR[TOKEN_HEADER]},
        "a foreign origin": {"Origin": "https://evil.example", TOKEN_HEADER: OPERATOR[TOKEN_HEADER]},
        "a foreign name": {"Host": "evil.example"},
        "a viewer": {},
        "a wrong token": {TOKEN_HEADER: "x", RATER_HEADER: "x"},
        "a rater": {RATER_HEADER: rating},
        "an operator": OPERATOR,
    }
    if mode == CLASS:
        people["a student"] = app.student()
    if mode == SPACE:
        people["a visitor"] = app.visitor()
    return people


def _table(checkout: Checkout, app: App, people: dict[str, dict[str, str]]) -> dict[str, Any]:
    functions = app.functions()
    table: dict[str, Any] = {"functions": {}, "with another's run": {}, "addresses": {}}
    for name, function in sorted(functions.items()):
        table["functions"][name] = {who: _outcome(*app.call(function, None, headers)) for who, headers in people.items()}
    body = {"run": RUN, "runs": [RUN], "action": "rename", "name": "taken over", "changes": {"ppo.kl_coef": 0.5}}
    harmless = {who: headers for who, headers in people.items() if who not in ("an operator", "at this machine")}
    for name, function in sorted(functions.items()):
        table["with another's run"][name] = {who: _outcome(*app.call(function, body, headers)) for who, headers in harmless.items()}
    for address in ADDRESSES.read_text(encoding="utf-8").splitlines():
        method, path = address.split(" ", 1)
        filled = path.format(checkout=checkout.root, work=checkout.work)
        sent = {} if method == "POST" else None
        table["addresses"][address] = {who: app.send(method, filled, sent, headers)[0] for who, headers in people.items()}
    return table


def _outcome(status: int, text: str) -> str:
    """Whether somebody was let in; if so, whether the function then refused by itself with an error for people."""
    if status in (403, 421):
        return "refused"
    if status in (404, 405):
        return "not there"
    title_shown = next((title for title in ("You are watching",) if title in text), "")
    return f"let in ({title_shown})" if title_shown else "let in"
