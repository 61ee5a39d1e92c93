"""Who asked for a run: ZeroGPU takes a lease's time from that person's quota, and knows them by a header of the request.

Hugging Face's page gives the header (``X-IP-Token``) to the app's page, which sends it with the events of Gradio's queue, and with no other
request. It is kept in memory alone, holds for a while only, and names nobody to the app.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gradio.context import LocalContext

MOST = 200  # requests that are kept; the oldest go first


class Askers:
    """The newest request for each run. May be used from several threads."""

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, run_id: str) -> None:
        """This run was just queued, by the request that this thread answers."""
        with self._lock:
            self._requests[run_id] = LocalContext.request.get(None)
            self._requests.move_to_end(run_id)
            while len(self._requests) > MOST:
                self._requests.popitem(last=False)

    def become(self, run_id: str) -> None:
        """Call this in the thread that takes leases for a run: ``spaces`` then sees the request of the person who asked for the run. It is
        forgotten here."""
        with self._lock:
            LocalContext.request.set(self._requests.pop(run_id, None))
