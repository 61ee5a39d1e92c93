"""Many who ask at once cost one reading; after a change nobody gets what was read before it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rlhf_studio.ui.serving.shared_reading import SharedReading


def test_all_who_ask_meanwhile_share_one_reading_and_the_loop_goes_on() -> None:
    reading, go_on, read = threading.Event(), threading.Event(), []

    def slow() -> int:
        reading.set()
        assert go_on.wait(60)
        read.append(1)
        return len(read)

    shared = SharedReading(slow, seconds=1e9)

    async def many() -> list[int]:
        asking = [asyncio.ensure_future(shared.get()) for _ in range(100)]
        await asyncio.to_thread(reading.wait, 60)
        asking[0].cancel()  # one goes away; the reading goes on for the others
        go_on.set()
        return await asyncio.gather(*asking[1:])

    assert asyncio.run(many()) == [1] * 99
    assert shared.get_in_thread() == 1 and read == [1]


def test_it_is_read_again_when_it_is_old_or_forgotten() -> None:
    numbers = iter(range(10))
    lasting, old = (SharedReading(lambda: next(numbers), seconds) for seconds in (1e9, -1.0))
    assert [asyncio.run(lasting.get()), asyncio.run(lasting.get())] == [0, 0]
    lasting.forget()
    assert asyncio.run(lasting.get()) == 1
    assert [asyncio.run(old.get()), old.get_in_thread()] == [2, 3]


def test_a_failure_goes_to_who_asked_and_is_not_kept() -> None:
    outcomes = iter([OSError("the disk is away"), 7])

    def read() -> int:
        value = next(outcomes)
        if isinstance(value, OSError):
            raise value
        return value

    shared = SharedReading(read, seconds=1e9)
    with pytest.raises(OSError, match="away"):
        asyncio.run(shared.get())
    assert asyncio.run(shared.get()) == 7
