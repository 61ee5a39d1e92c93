"""Replies of which many viewers get the same part: that part is compressed once for all of them.

A gzip file is a row of blocks that are compressed one after the other (RFC 1951, RFC 1952). So what differs from viewer to viewer is
written as a block that is not compressed, and what is shared follows as blocks that were made before and refer to nothing outside of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

from starlette.responses import Response

COMPRESSION_LEVEL = 1  # a quarter of the time of level 9, for almost the same size
SMALLEST = 1000  # bytes; what fits one packet anyway is not compressed
LARGEST_KEPT = 200_000  # bytes of a shared part that is kept compressed
MOST_KEPT = 64
_LONGEST_BLOCK = 65_535  # bytes that a block may hold which is not compressed
_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # gzip, deflate, no name, no time, unknown system


class SharedReply(Response):
    """A JSON reply in two parts, one after the other: a viewer's ``own``, and what is ``shared``."""

    def __init__(self, own: bytes, shared: bytes) -> None:
        super().__init__(own + shared, media_type="application/json", headers={"cache-control": "no-store"})
        self._own, self._shared = own, shared

    def told(self, packed: bool, hide: Callable[[bytes], bytes] = lambda body: body) -> Response:
        """As it is sent; ``packed``: to somebody who reads gzip. ``hide`` takes out of each part what this viewer must not see."""
        own, shared = hide(self._own), hide(self._shared)
        if not packed or len(own) + len(shared) < SMALLEST:
            return SharedReply(own, shared)
        headers = {"cache-control": "no-store", "content-encoding": "gzip", "vary": "Accept-Encoding"}
        return Response(gzipped(own, shared), media_type="application/json", headers=headers)


def gzipped(own: bytes, shared: bytes) -> bytes:
    """Both parts as one gzip file."""
    ends = _kept(shared) if len(shared) <= LARGEST_KEPT else _deflated(shared)
    blocks = [_as_it_is(own[at : at + _LONGEST_BLOCK]) for at in range(0, len(own), _LONGEST_BLOCK)]
    checksum, length = zlib.crc32(shared, zlib.crc32(own)), (len(own) + len(shared)) % 2**32
    return b"".join([_HEAD, *blocks, ends, checksum.to_bytes(4, "little"), length.to_bytes(4, "little")])


def _as_it_is(part: bytes) -> bytes:
    """A block that is not compressed and not the last one."""
    return b"\x00" + len(part).to_bytes(2, "little") + (len(part) ^ 0xFFFF).to_bytes(2, "little") + part


def _deflated(part: bytes) -> bytes:
    """Compressed blocks, with the last one."""
    packer = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(part) + packer.flush()


_kept = lru_cache(maxsize=MOST_KEPT)(_deflated)
