"""What the votes of a task show: how far annotators agree, what each one prefers, and where they disagree. Numbers and texts for the
page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from rlhf_studio.analysis.agreement import Share, Units, cohens_kappa, fleiss_kappa, krippendorff_alpha
from rlhf_studio.runs.feedback.exchange import pairs_of_ranks
from rlhf_studio.runs.feedback.records import Item, Task, Vote, as_expected

MOST_DISAGREEMENTS = 30
MOST_PEOPLE = 100
MOST_SOURCES = 12
_NUMBERED = re.compile(r", (answer|step) \d+$")
Json = dict[str, Any]


def results(
    task: Task, items: Sequence[Item], votes: Sequence[Vote], calibration_items: Sequence[Item], calibration: Sequence[Vote]
) -> Json:
    """Everything of one task. ``votes`` are of real items, ``calibration`` those of ``calibration_items``."""
    expected = {item.id: item.answer for item in calibration_items}
    known = {item.id: item for item in items}
    answers = [vote for vote in votes if vote.verdict != "skip"]
    people = sorted({vote.annotator for vote in votes}, key=str.casefold)[:MOST_PEOPLE]
    return {
        "agreement": agreement(task, answers),
        "verdicts": dict(Counter(_word(vote) for vote in votes)),
        "preferred": _preferred(known, answers),
        "people": [{**_person(name, known, votes, calibration), "known": _known(name, expected, calibration)} for name in people],
        "disagreements": _disagreements(known, answers),
    }


def units_of(task: Task, votes: Sequence[Vote]) -> Units:
    """The judged units, each with the verdict of every annotator. A unit is an item; a ranking gives one unit for each two responses, which
    are compared like a pair."""
    units: dict[Any, dict[str, Any]] = {}
    for vote in votes:
        if vote.verdict == "ranks":
            for two, better in pairs_of_ranks(vote.value).items():
                units.setdefault((vote.item, two), {})[vote.annotator] = better
        elif vote.verdict != "skip":
            units.setdefault(vote.item, {})[vote.annotator] = vote.value if vote.verdict in ("chosen", "rating") else vote.verdict
    return list(units.values())


def agreement(task: Task, votes: Sequence[Vote]) -> Json:
    """Krippendorff's alpha, Fleiss' kappa, and Cohen's kappa of each two annotators, with how many items each was computed from."""
    units = [unit for unit in units_of(task, votes) if len(unit) >= 2]
    level = "ordinal" if task.settings.kind == "rating" else "nominal"
    fleiss, fleiss_items = fleiss_kappa(units)
    both: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for unit in units:
        for first, other in combinations(sorted(unit, key=str.casefold), 2):
            both.setdefault((first, other), []).append((unit[first], unit[other]))
    cohen = [{"people": list(names), "kappa": cohens_kappa(pairs), "items": len(pairs)} for names, pairs in sorted(both.items())]
    equal = [len(set(unit.values())) == 1 for unit in units]
    return {
        "items": len(units),
        "level": level,
        "alpha": krippendorff_alpha(units, level),  # type: ignore[arg-type]
        "fleiss": fleiss,
        "fleiss_items": fleiss_items,
        "same": sum(equal) / len(equal) if equal else None,
        "cohen": cohen[:MOST_PEOPLE],
    }


def _word(vote: Vote) -> str:
    return str(vote.value) if vote.verdict == "rating" else vote.verdict


def _person(name: str, items: Mapping[int, Item], votes: Sequence[Vote], calibration: Sequence[Vote]) -> Json:
    own = [vote for vote in votes if vote.annotator == name]
    chosen = [vote for vote in own if vote.verdict == "chosen" and vote.item in items]
    first = Share(sum(vote.shown[0] == vote.value for vote in chosen), len(chosen))
    unequal = [vote for vote in chosen if len(set(map(len, items[vote.item].responses))) > 1]
    longer = Share(sum(_is_longest(items[vote.item], vote.value) for vote in unequal), len(unequal))
    answered = [vote for vote in own if vote.verdict != "skip"]
    seconds = sorted(vote.seconds for vote in answered)
    ratings = [vote.value for vote in own if vote.verdict == "rating"]
    return {
        "name": name,
        "votes": len(answered),
        "skips": len(own) - len(answered),
        "ties": sum(vote.verdict in ("tie", "both_bad") for vote in own),
        "seconds": seconds[len(seconds) // 2] if seconds else None,
        "first": _share(first),
        "longer": _share(longer),
        "rating": sum(ratings) / len(ratings) if ratings else None,
        "rounds": max((vote.attempt for vote in calibration if vote.annotator == name), default=0),
    }


def _known(name: str, expected: Mapping[int, Any], calibration: Sequence[Vote]) -> Json:
    """In how many of the answers to items with a known answer a person was right, in all rounds together."""
    own = [vote for vote in calibration if vote.annotator == name and vote.item in expected and vote.verdict != "skip"]
    right = sum(as_expected(vote.verdict, vote.value, expected[vote.item]) for vote in own)
    return {"right": right, **_share(Share(right, len(own)))}


def _preferred(items: Mapping[int, Item], votes: Sequence[Vote]) -> list[Json]:
    """How often each source was chosen of the choices in which it took part, the most chosen first; empty where no item names two."""
    of: dict[str, list[bool]] = {}
    for vote in votes:
        names = [_source(source) for source in items[vote.item].sources] if vote.item in items else []
        if vote.verdict == "chosen" and len(set(names)) == len(names) == 2:
            for place, name in enumerate(names):
                of.setdefault(name, []).append(place == vote.value)
    shares = [(name, Share(sum(won), len(won))) for name, won in of.items()]
    shares.sort(key=lambda pair: -(pair[1].share or 0.0))
    return [{"source": name, "wins": share.hits, **_share(share)} for name, share in shares[:MOST_SOURCES]]


def _source(text: str) -> str:
    """Where a response came from, without the number of the answer or of the step."""
    return _NUMBERED.sub("", text)


def _is_longest(item: Item, response: int) -> bool:
    return len(item.responses[response]) == max(len(text) for text in item.responses)


def _share(share: Share) -> Json:
    return {"share": share.share, "count": share.count, "interval": share.interval, "leans": share.leans}


def _disagreements(items: Mapping[int, Item], votes: Sequence[Vote]) -> list[Json]:
    """The items on which people differ most, the most evenly split first."""
    of: dict[int, list[Vote]] = {}
    for vote in votes:
        of.setdefault(vote.item, []).append(vote)
    split = []
    for item, given in of.items():
        counts = Counter(str((vote.verdict, vote.value)) for vote in given)
        if len(counts) > 1 and item in items:
            spread = max(vote.value for vote in given) - min(vote.value for vote in given) if given[0].verdict == "rating" else 0
            split.append((counts.most_common(1)[0][1] / len(given), -spread, -len(given), item))
    return [_disagreement(items[item], of[item]) for *_, item in sorted(split)[:MOST_DISAGREEMENTS]]


def _disagreement(item: Item, votes: Sequence[Vote]) -> Json:
    verdicts = [{"name": vote.annotator, "verdict": vote.verdict, "value": vote.value} for vote in votes]
    return {
        "number": item.number,
        "prompt": item.prompt,
        "responses": list(item.responses),
        "sources": list(item.sources),
        "said": verdicts,
    }
