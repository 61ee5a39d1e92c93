"""A Space as browsers see it, on this machine: the app behind a proxy with TLS under the Space's own name, in a frame of the hub's page,
and a stand-in for the hub, which has that page and lets people log in."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

SPACE_HOST, HUB_HOST = "ada-rlhf-studio.hf.space", "huggingface.co"
SPACE, FRAMED = f"https://{SPACE_HOST}/", f"https://{HUB_HOST}/spaces/ada/rlhf-studio"
KEY = ECKey.generate_key("P-256", {"kid": "1"})  # with which the hub signs who somebody is
VISITORS_ADDRESS = "8.8.4.4"
FRAME = f"""<!doctype html><title>ada/rlhf-studio</title>
<style>body {{ margin: 0 }} iframe {{ border: 0; width: 100vw; height: 100vh }}</style>
<iframe src="{SPACE}" title="Space" allow="clipboard-read; clipboard-write"
sandbox="allow-downloads allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox allow-same-origin allow-scripts"></iframe>"""


def environment(hub: Hub) -> dict[str, str]:
    """What a Space sets for its app."""
    return {
        "SYSTEM": "spaces",
        "SPACE_ID": "ada/rlhf-studio",
        "SPACE_HOST": SPACE_HOST,
        "SPACE_AUTHOR_NAME": "ada",
        "SPACE_REPO_NAME": "rlhf-studio",
        "SPACE_TITLE": "RLHF Studio",
        "OPENID_PROVIDER_URL": f"http://127.0.0.1:{hub.port}",
        "OAUTH_CLIENT_ID": "client-1",
        "OAUTH_CLIENT_SECRET": "canary-client-secret",
        "OAUTH_SCOPES": "openid profile",
    }


@dataclass
class Hub:
    """The stand-in for the hub: ``person`` is who is logged in there."""

    person: str = "ada"
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)  # code -> who it is of, and the login's nonce
    port: int = 0

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body)."""
        address = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        own = f"http://127.0.0.1:{self.port}"
        if address.path == "/spaces/ada/rlhf-studio":
            return 200, {"Content-Type": "text/html"}, FRAME.encode()
        if address.path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": f"https://{HUB_HOST}/authorize", "token_endpoint": f"{own}/token", "jwks_uri": f"{own}/jwks"}
            return _json({**names, "issuer": own, "id_token_signing_alg_values_supported": ["ES256"]})
        if address.path == "/jwks":
            return _json({"keys": [KEY.as_dict(private=False)]})
        if address.path == "/authorize":
            code = f"code-{len(self.codes)}"
            self.codes[code] = self.person, query["nonce"]
            return 303, {"Location": f"{query['redirect_uri']}&{urlencode({'code': code, 'state': query['state']})}"}, b""
        if address.path == "/token":
            person, nonce = self.codes.pop(form["code"])
            times = {"iat": int(time.time()), "exp": int(time.time()) + 600}
            claims = {"iss": own, "aud": "client-1", "sub": "1", "nonce": nonce, "preferred_username": person, **times}
            signed = jwt.encode({"alg": "ES256", "kid": "1"}, claims, KEY)
            return _json({"access_token": "token", "token_type": "bearer", "expires_in": 3600, "id_token": signed})
        return 404, {}, b""


def _json(data: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(data).encode()


@contextmanager
def hub() -> Iterator[Hub]:
    """A served stand-in."""
    known = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            return self.reply(*known.answer(self.path, {}))

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply(*known.answer(self.path, {name: values[0] for name, values in parse_qs(sent).items()}))

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield known
    server.shutdown()
    server.server_close()


def certificate(folder: Path) -> ssl.SSLContext | None:
    """A certificate of our own making for both names; None where there is no ``openssl``."""
    program = shutil.which("openssl")
    if program is None:
        return None
    key, made = folder / "key.pem", folder / "certificate.pem"
    names = f"subjectAltName=DNS:{SPACE_HOST},DNS:{HUB_HOST}"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([program, "req", "-x509", *kind, "-addext", names, "-keyout", key, "-out", made], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    return context


class Proxy:
    """Ends TLS and passes each request on, by its host name, with the headers that a proxy adds.

    A connection is kept where a reply says how long it is.

    ``ports`` says which port of this machine a name leads to.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.ports: dict[str, int] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._context.wrap_socket(connection, server_side=True) as visitor:
                while self._pass_on(visitor):
                    pass
        except OSError:
            return  # the browser went away

    def _pass_on(self, visitor: ssl.SSLSocket) -> bool:
        """One request and its reply; whether the visitor may ask again on this connection."""
        first, lines, body = message(visitor)
        if not first:
            return False
        sent = fields(lines)
        while len(body) < int(sent.get(b"content-length", 0)):
            body += visitor.recv(65536)
        own = [line for line in lines if not line.lower().startswith(b"connection:")]
        added = [b"Connection: close", b"X-Forwarded-Proto: https", f"X-Forwarded-For: {VISITORS_ADDRESS}".encode()]
        with socket.create_connection(("127.0.0.1", self.ports[sent[b"host"].decode()])) as app:
            app.sendall(b"\r\n".join([first, *own, *added]) + b"\r\n\r\n" + body)
            first, lines, body = message(app)
            if not first:
                return False
            has_end = b"content-length" in fields(lines) or b" 304 " in first  # otherwise it ends with the connection
            lines = [line for line in lines if not (has_end and line.lower().startswith(b"connection:"))]
            visitor.sendall(b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body)
            while data := app.recv(65536):  # nothing is read meanwhile: such a socket is not for two threads
                visitor.sendall(data)
        return has_end


def message(sender: socket.socket) -> tuple[bytes, list[bytes], bytes]:
    """(first line, header lines, what has come of the body); nothing where the connection has ended."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = sender.recv(65536)
        if not more:
            return b"", [], b""
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, lines, body


def fields(lines: list[bytes]) -> dict[bytes, bytes]:
    """Headers by their names in lower case."""
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
