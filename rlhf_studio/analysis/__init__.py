"""What a recorded run says of itself: a diagnosis, what the policy learned, how runs compare.

Everything here reads a run's records through :class:`rlhf_studio.runs.reader.RunReader` and needs numpy alone, so it works inside the app
(which has no torch), for a run that goes on and for one that ended years ago. The engine uses ``reward_model`` alone, for the metrics
of the stage that trains reward models.
"""
