"""What holds in the scenes of ``pages/query_and_response.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.query_and_response import EPS, LENGTHS, RATIOS
from tests.lessons.claims import Claims


def _loss_by_hand(n: Numbers) -> bool:
    total, everything, count = 0.0, 0.0, 0
    for row, ratios in enumerate(RATIOS):
        for index, ratio in enumerate(ratios):
            advantage = n["advantages"][row][index]
            loss = max(-advantage * ratio, -advantage * min(max(ratio, 1 - EPS), 1 + EPS))
            everything += loss
            if index < (LENGTHS[0], n["ended"])[row]:
                total, count = total + loss, count + 1
    return bool(abs(total / count - n["right"]) < 1e-9 and abs(everything / 12 - n["wrong"]) < 1e-9 and count == n["tokens"])


CLAIMS: Claims = {
    "from_text_to_query": {
        "the query is the beginning of the text": lambda n: n["query_ids"] == n["ids"][: int(n["length"])],
        "all probabilities add up to 1": lambda n: abs(n["sum"] - 1) < 1e-4,
        "nothing is likelier than the likeliest": lambda n: n["chance"] <= n["top_chance"],
    },
    "drawn_lengths": {
        "all lengths lie in the range": lambda n: all(n["low"] <= length <= n["low"] + n["spread"] for length in n["lengths"]),
        "queries are beginnings of texts": lambda n: n["beginnings"],
        "without a spread all are equal": lambda n: n["several"] == (n["spread"] > 0),
        "the bars hold them all": lambda n: sum(n["counts"].values()) == n["all"],
    },
    "only_the_response": {
        "both means follow by hand": _loss_by_hand,
        "junk changes nothing": lambda n: abs(n["right"] - n["clean"]) < 1e-12,
        "what is behind the end is no part of it": lambda n: n["ended"] + n["behind"] == n["width"],
    },
    "padding": {
        "the engine's numbers do not depend on padding": lambda n: n["largest"] < 1e-4,
        "positions that ignore the mask do": lambda n: n["differs"] == (n["pads"] > 0),
    },
    "check_yourself": {
        "slots up to the end token count, the rest do not": lambda n: n["counts"] == (n["place"] <= n["length"]),
        "each pushes by its share of the mean": lambda n: abs(n["slope"] + (1 / n["length"] if n["counts"] else 0)) < 1e-12,
    },
}
