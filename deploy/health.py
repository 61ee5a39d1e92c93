"""Ask the app of this container whether it serves: exit code 0 when it does, 1 when it does not. The Dockerfile's HEALTHCHECK."""

import os
import sys
from http.client import HTTPException
from urllib.request import ProxyHandler, build_opener

SECONDS = 4


def serves(port: str) -> bool:
    """Whether an app on this machine's port answers ``/health`` with status 200."""
    direct = build_opener(ProxyHandler({}))  # a proxy of the environment leads away from this machine
    try:
        with direct.open(f"http://127.0.0.1:{port}/health", timeout=SECONDS) as answer:
            return answer.status == 200
    except (OSError, HTTPException):
        return False


if __name__ == "__main__":
    sys.exit(0 if serves(os.environ.get("GRADIO_SERVER_PORT", "7860")) else 1)
