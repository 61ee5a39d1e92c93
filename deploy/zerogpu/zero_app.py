"""Start the app on a ZeroGPU Space, as its ``app_file``. README.md, beside this file, has the commands; elsewhere start ``app.py``."""

import sys

try:
    import spaces  # before torch: it takes the place of CUDA outside of leases
except ImportError:
    sys.exit("rlhf-studio: zero_app.py is for ZeroGPU Spaces, which bring the package 'spaces'. Here, start the app with: python app.py")

from leases.lease import Lease, LeaseEnd
from leases.loop import Leases
from leases.worker import play  # loads torch and transformers here, once, and not in each lease

from rlhf_studio.ui.app import main


def seconds_of(lease: Lease) -> int:
    """How long a lease to ask for."""
    return lease.seconds


@spaces.GPU(duration=seconds_of)
def take_lease(lease: Lease) -> LeaseEnd:
    """Train for one lease, in a process that has a GPU. ``spaces`` must find this function before the app is launched."""
    return play(lease)


if __name__ == "__main__":
    if hasattr(spaces, "zero") and hasattr(spaces.zero, "startup"):
        spaces.zero.startup()  # the package does it by itself where Gradio's own ``launch`` serves the app
    leases = Leases(take_lease)
    sys.exit(main(start=leases, on_queued=leases.askers.note))
