"""The recorded run of the lessons, loaded once."""

from __future__ import annotations

import pytest

from rlhf_studio.lessons.run import LessonRun, lesson_run


@pytest.fixture(scope="session")
def run() -> LessonRun:
    return lesson_run()
