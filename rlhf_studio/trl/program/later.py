"""stub"""


class LaterPPOTrainer:
    def __init__(self, args): ...
