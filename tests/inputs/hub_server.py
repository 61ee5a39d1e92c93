"""A stand-in for the Hugging Face hub: serves one folder as the dataset owner/set over HTTP, as far as the dataset library asks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "a" * 40
TOKEN = "hf_canary"


class Handler(BaseHTTPRequestHandler):
    """Answers about ``folder``, as owner/set and, to who shows :data:`TOKEN`, as owner/gated; every other dataset is missing."""

    protocol_version = "HTTP/1.1"
    folder: Path
    served: list[int]  # bytes of each answer with a part of a file

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_json([self.entry(self.folder / name) for name in body["paths"] if (self.folder / name).exists()])

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if match := re.fullmatch(r"/api/datasets/(owner/\w+)(?:/revision/([^/]+))?", path):
            self.send_facts(match[1], match[2] or "main")
        elif "owner/gated" in path and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send_json({}, 403, "GatedRepo")
        elif match := re.fullmatch(r"/api/datasets/owner/(?:set|gated)/tree/[^/]+(?:/(.*))?", path):
            self.send_json([self.entry(entry) for entry in sorted((self.folder / (match[1] or "")).rglob("*"))])
        elif (match := re.fullmatch(r"/datasets/owner/(?:set|gated)/resolve/[^/]+/(.+)", path)) and (self.folder / match[1]).is_file():
            self.send_file(self.folder / match[1])
        elif path == "/api/datasets/owner/gated/auth-check":
            self.send_json({})
        else:
            self.send_json({}, 404, "EntryNotFound")

    def send_facts(self, name: str, revision: str) -> None:
        if name not in ("owner/set", "owner/gated"):
            self.send_json({}, 404, "RepoNotFound")
        elif revision not in ("main", COMMIT):
            self.send_json({}, 404, "RevisionNotFound")
        else:
            facts = {"id": name, "sha": COMMIT, "private": False, "gated": "manual" if name == "owner/gated" else False}
            self.send_json({**facts, "siblings": [{"rfilename": path.name} for path in self.folder.iterdir()]})

    def entry(self, path: Path) -> dict[str, Any]:
        name = path.relative_to(self.folder).as_posix()
        kind = {"type": "directory"} if path.is_dir() else {"type": "file", "size": path.stat().st_size}
        return {**kind, "path": name, "oid": sha1(name.encode()).hexdigest()}

    def send_file(self, path: Path) -> None:
        data, headers, status = path.read_bytes(), {"ETag": f'"{sha1(path.name.encode()).hexdigest()}"', "X-Repo-Commit": COMMIT}, 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
            headers["Content-Range"], status = f"bytes {first}-{last}/{len(data)}", 206
            data = data[first : last + 1]
            self.served.append(len(data))
        self.send(data, status, headers)

    def send_json(self, content: Any, status: int = 200, error: str = "") -> None:
        self.send(json.dumps(content).encode(), status, {"Content-Type": "application/json", **({"X-Error-Code": error} if error else {})})

    def send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def hub_server(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Serve ``folder``; gives the address, and the growing list of bytes fetched from files."""
    served: list[int] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("FolderHandler", (Handler,), {"folder": folder, "served": served}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
