"""An app without pages: a dispatcher on a workspace, until it is killed. Prints one line when it has begun."""

import sys
import threading
from pathlib import Path

from rlhf_studio.runs import launch
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.workspace import Workspace
from tests.runs.store_helpers import fake_command

launch.engine_command = fake_command
dispatcher = Dispatcher(Workspace(Path(sys.argv[1])), interval=0.05)
print("begun", *dispatcher.start(), flush=True)
threading.Event().wait()
