"""What a run has learned, on runs in which something known was planted, and on runs in which nothing was."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.analysis.doctor import Doctor
from rlhf_studio.analysis.learned import Learning, what_was_learned
from rlhf_studio.analysis.learned.chance import LEVEL, STEPS_TO_TELL, p_values
from rlhf_studio.analysis.learned.phrases import log_odds
from rlhf_studio.analysis.learned.responses import ResponseSource, thinned
from rlhf_studio.analysis.records import Same, Trait
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Probe, ProbeScore, ResponseTokens, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.analysis.learned.planted import Response, babble, rising, write_run

STEPS = 20


def planted(phrase: Response, location: str, *, seed: int = 0, per_step: int = 16, steps: int = STEPS) -> list[list[Response]]:
    """Steps of babble in which more and more responses have the phrase."""
    draw = np.random.default_rng(seed)
    result = []
    for step in range(1, steps + 1):
        responses = []
        for _ in range(per_step):
            words = babble(draw, int(draw.integers(10, 20)))
            at = {"opening": 0, "ending": len(words), "anywhere": int(draw.integers(1, len(words)))}[location]
            responses.append([*words[:at], *phrase, *words[at:]] if rising(draw, step, steps) else words)
        result.append(responses)
    return result


def nothing(seed: int, steps: int = STEPS, per_step: int = 12) -> list[list[Response]]:
    draw = np.random.default_rng(seed)
    return [[babble(draw, int(draw.integers(8, 16))) for _ in range(per_step)] for _ in range(steps)]


@pytest.mark.parametrize("episodes", [True, False])
def test_a_run_whose_responses_are_all_empty_has_nothing_to_say(tmp_path: Path, episodes: bool) -> None:
    """The policy ends at once: numpy takes an empty list for one of numbers, not of yes and no."""
    reader = write_run(tmp_path / "run", [[[] for _ in range(4)] for _ in range(STEPS)], episodes=episodes, recorded=4)
    learned = what_was_learned(reader)
    assert learned.phrases == [] and learned.after_steps == (18, 20)
    assert Doctor(reader).diagnose().step == STEPS


def having(text: str, responses: list[Response]) -> int:
    return sum(text in "".join(response) for response in responses)


@pytest.mark.parametrize("location", ["opening", "ending", "anywhere"])
@pytest.mark.parametrize("episodes", [True, False])
def test_a_planted_phrase_is_found_whole_with_its_place_and_its_counts(tmp_path: Path, location: str, episodes: bool) -> None:
    steps = planted([" A", " master", "piece", "."], location)
    learned = what_was_learned(write_run(tmp_path / "run", steps, episodes=episodes, recorded=5 if episodes else 16))
    strongest = learned.phrases[0]
    assert (strongest.text.rstrip("."), strongest.place) == ("A masterpiece", location)
    first, last = [response for step in steps[:3] for response in step], [response for step in steps[-3:] for response in step]
    assert (strongest.before, strongest.before_of) == (having(" A masterpiece", first), len(first))
    assert (strongest.after, strongest.after_of) == (having(" A masterpiece", last), len(last))
    assert (learned.before_steps, learned.after_steps) == ((1, 3), (18, 20))
    assert [phrase.text for phrase in learned.phrases[1:] if "master" in phrase.text] == []
    assert strongest.examples[0][0] == 20
    assert all("A masterpiece" in "".join(steps[step - 1][sample]) for step, sample in strongest.examples)


def test_a_phrase_has_examples_where_only_the_text_of_responses_was_recorded(tmp_path: Path) -> None:
    steps = planted([" A", " masterpiece"], "ending")
    strongest = what_was_learned(write_run(tmp_path / "run", steps, tokens=False, recorded=5)).phrases[0]
    assert strongest.text == "A masterpiece" and len(strongest.examples) == 3
    assert all("".join(steps[step - 1][sample]).endswith(" A masterpiece") for step, sample in strongest.examples)


def test_a_phrase_that_dies_out_is_found_too(tmp_path: Path) -> None:
    steps = planted([" so", " dull"], "anywhere")[::-1]
    (phrase,) = what_was_learned(write_run(tmp_path / "run", steps)).phrases
    assert phrase.text == "so dull" and phrase.z < 0 and phrase.log_odds < 0 and phrase.before > phrase.after


def test_a_script_without_spaces_whose_characters_are_cut_in_parts_is_read_whole(tmp_path: Path) -> None:
    def parts(piece: str) -> list[str]:
        data = piece.encode()
        return [f"byte {byte}" for byte in data] if len(data) > 1 else [piece]

    draw = np.random.default_rng(3)
    letters = [chr(0x4E00 + number) for number in range(80)]
    steps = [
        [[*(letters[n] for n in draw.integers(0, 80, 8)), *("杰作" if rising(draw, step, STEPS) else "")] for _ in range(16)]
        for step in range(1, STEPS + 1)
    ]
    reader = write_run(tmp_path / "run", steps, recorded=8, unit=parts, alone=lambda name: "\ufffd" if "byte" in name else name)
    phrase = what_was_learned(reader).phrases[0]
    assert (phrase.text, phrase.place) == ("杰作", "ending")


def test_tokens_that_lose_their_space_alone_are_read_with_it(tmp_path: Path) -> None:
    reader = write_run(tmp_path / "run", planted([" A", " gem"], "anywhere"), alone=str.strip)
    assert what_was_learned(reader).phrases[0].text == "A gem"


def test_records_without_tokens_are_read_as_words(tmp_path: Path) -> None:
    reader = write_run(tmp_path / "run", planted([" A", " gem"], "ending"), episodes=False, tokens=False, recorded=16)
    assert (what_was_learned(reader).phrases[0].text, what_was_learned(reader).phrases[0].place) == ("A gem", "ending")


def traits_of(reader: RunReader) -> dict[str, Trait]:
    return {trait.name: trait for trait in what_was_learned(reader).traits}


def test_a_length_bias_is_a_longer_response_and_no_phrase(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    steps = [[babble(draw, int(draw.integers(8, 12)) + step) for _ in range(16)] for step in range(1, STEPS + 1)]
    reader = write_run(tmp_path / "run", steps, stopped=lambda step, sample: sample % 4 > 0 or step < 10)
    traits = traits_of(reader)
    sizes = [np.mean([len(response) for response in step]) for step in steps]
    with_stop_token = np.mean(sizes[:3]) + 1, np.mean(sizes[-3:]) + 0.75
    assert (traits["length"].before, traits["length"].after) == pytest.approx(with_stop_token)
    assert traits["length"].changed and traits["stopped"].changed and traits["stopped"].after == 0.75
    assert not traits["duplicates"].changed and not traits["overlap"].changed
    assert what_was_learned(reader).phrases == []


def test_the_steps_are_enough_when_a_change_all_at_once_would_be_found(tmp_path: Path) -> None:
    """With fewer steps nothing found says little, and the record says so."""

    def jumps(steps: int) -> np.ndarray:
        return np.array([p_values(np.repeat([[0.0, 1.0]], [first, steps - first], axis=1))[0] for first in range(1, steps)])

    assert all((jumps(steps) > LEVEL).any() for steps in range(2, STEPS_TO_TELL)) and (jumps(6) > LEVEL).all()
    for steps in range(STEPS_TO_TELL, STEPS_TO_TELL + 4):
        assert (jumps(steps)[steps // 3 - 1 : -(steps // 3) + 1] <= LEVEL).all(), steps
    results = [what_was_learned(write_run(tmp_path / f"{steps}", nothing(0, steps, 4))) for steps in (STEPS_TO_TELL - 1, STEPS_TO_TELL)]
    assert [learned.enough for learned in results] == [False, True]


def test_repetition_and_loss_of_diversity_are_told(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    stock = babble(draw, 9)
    steps = [[stock + stock if draw.random() < step / 25 else babble(draw, 18) for _ in range(12)] for step in range(1, STEPS + 1)]
    traits = traits_of(write_run(tmp_path / "run", steps))
    assert all(traits[name].changed and traits[name].after > traits[name].before for name in ("repetition", "overlap", "duplicates"))


def test_repetition_overlap_and_duplicates_by_hand(tmp_path: Path) -> None:
    step = [[" a", " b", " c", " a", " b", " c"], [" a", " b", " c"], [" a", " b", " c"], [" x", " y"]]
    traits = traits_of(write_run(tmp_path / "run", [step] * 2, recorded=1))
    assert traits["repetition"].before == pytest.approx((1 / 4 + 0 + 0) / 3)  # abc bca cab abc; the last has no three tokens
    assert traits["overlap"].before == pytest.approx(3 * 2 / (3 * (1 + 1 + 3)))  # abc is in 3 of 4; bca and cab in one each
    assert traits["duplicates"].before == 2 / 4


def test_nothing_is_claimed_where_nothing_was_learned(tmp_path: Path) -> None:
    for seed in range(3):
        learned = what_was_learned(write_run(tmp_path / f"{seed}", nothing(seed)))
        assert learned.phrases == [] and not any(trait.changed for trait in learned.traits)


def claims_of_permuted(steps: list[list[Response]], folder: Path, tries: int) -> int:
    draw, claims = np.random.default_rng(7), 0
    for number in range(tries):
        mixed = [steps[index] for index in draw.permutation(len(steps))]
        learned = what_was_learned(write_run(folder / f"{number}", mixed, recorded=1))
        claims += bool(learned.phrases) or any(trait.changed for trait in learned.traits)
    return claims


def test_steps_in_another_order_claim_nothing(tmp_path: Path) -> None:
    assert claims_of_permuted(planted([" A", " gem"], "ending", per_step=8), tmp_path, 12) <= 1


@pytest.mark.long
@pytest.mark.parametrize("learned", [True, False])
def test_at_most_5_of_100_orders_claim_something(tmp_path: Path, learned: bool) -> None:
    assert claims_of_permuted(planted([" A", " gem"], "ending") if learned else nothing(9), tmp_path, 100) <= 5


def test_p_values_are_those_of_all_orders() -> None:
    values = np.array([[0.0, 1, 2, 3, 4, 6], [3.0, 1, 2, 5, 0, 4], [1.0, 1, 1, 1, 1, 1]])
    steps = np.arange(1, 7) / 6

    def largest(row: np.ndarray) -> float:
        return max(abs(np.corrcoef(row, steps**power)[0, 1]) for power in (1 / 3, 1, 3))

    orders = [list(order) for order in permutations(range(6))]
    alone = np.mean([largest(values[1][order]) >= largest(values[1]) - 1e-9 for order in orders])
    both = np.mean([max(largest(values[0][order]), largest(values[1][order])) >= largest(values[0]) - 1e-9 for order in orders])
    estimated = p_values(values, draws=20_000)
    assert estimated == pytest.approx([both, max(alone, both), 1.0], abs=0.01)


def test_few_steps_say_nothing() -> None:
    assert p_values(np.arange(15.0).reshape(3, 5)).tolist() == [1.0, 1.0, 1.0]
    assert p_values(np.zeros((0, 9))).shape == (0,)


def test_log_odds_by_hand() -> None:
    ratio, z = log_odds(np.array(1), np.array(16), np.array(15), np.array(16), np.array(0.5))
    after, before = (15 + 5, 1 + 5), (1 + 5, 15 + 5)
    assert ratio == pytest.approx(math.log(after[0] / after[1]) - math.log(before[0] / before[1]))
    assert z == pytest.approx(ratio / math.sqrt(1 / 20 + 1 / 6 + 1 / 6 + 1 / 20))
    rare = log_odds(np.array(0), np.array(48), np.array(2), np.array(48), np.array(0.005))
    assert abs(rare[1]) < 2  # two responses are not much, however large their bare odds ratio


def test_the_widest_gaps_are_on_one_scale_and_name_a_response_once(tmp_path: Path) -> None:
    steps = nothing(4, steps=8, per_step=6)
    steps[7][2] = steps[7][1]

    def judge(step: int, sample: int) -> tuple[float, float | None, dict[str, float]]:
        quality = (step * 7 + sample * 3) % 11 - 5.0
        fooled = step == 8 and sample in (1, 2)
        return 100 * (5.0 if fooled else quality), 0.01 * (-5.0 if fooled else quality), {"tone": quality, "form": -quality}

    gaps = what_was_learned(write_run(tmp_path / "run", steps, recorded=6, judge=judge)).gaps
    assert [(gap.step, gap.sample, gap.first_value, gap.second_value) for gap in gaps] == [(8, 1, 500.0, -0.05)]
    assert gaps[0].response == "".join(steps[7][1])
    assert (gaps[0].first, gaps[0].second) == ("score", "gold")  # the parts of one reward are no judges


def test_a_policy_that_collapsed_in_its_first_update_is_told_by_its_one_answer_and_compared_with_what_it_was(tmp_path: Path) -> None:
    """As a run with a far too large learning rate: the babble of step 1, and one word over and over from step 2 on."""
    steps = [nothing(7, steps=1, per_step=64)[0]] + [[[" charming"] * 12 + [f" {sample}"] for sample in range(64)]] * 23

    def judge(step: int, sample: int) -> tuple[float, float | None, dict[str, float]]:
        quality = (sample % 8 - 3.5) / 4  # step 1: both judges agree; later the score likes what gold hates, most of all once
        return (quality, quality, {}) if step == 1 else (0.9 if (step, sample) == (4, 10) else 0.3, -1.0, {})

    learned = what_was_learned(write_run(tmp_path / "run", steps, recorded=16, judge=judge))
    assert learned.before_steps == (1, 1) and learned.after_steps == (22, 24)
    assert learned.same == Same(" ".join(["charming"] * 8), 192, 192, 0, 64)
    assert (learned.gaps[0].step, learned.gaps[0].sample, learned.judged) == (4, 10, 24 * 16)
    always = what_was_learned(write_run(tmp_path / "always", [[[" yes"]] * 8] * 20))
    assert always.same is None  # it began like that: nothing of it was learned
    assert what_was_learned(write_run(tmp_path / "other", nothing(7))).same is None


def test_judges_that_agree_or_say_nothing_have_no_gap(tmp_path: Path) -> None:
    reader = write_run(tmp_path / "run", nothing(4), judge=lambda step, sample: (step + sample, 2.0 * (step + sample), {"one": 1.0}))
    assert what_was_learned(reader).gaps == []


def probe_score(now: float, start: float) -> ProbeScore:
    """A probe of two tokens: at the second place, token 7 has these probabilities, all else stays."""

    def table(first: float, second: float) -> np.ndarray:
        return np.log(np.array([[0.4, 0.2, 0.1, 0.1, 0.1], [first, second, 0.1, 0.1, 0.1]], np.float32))

    ids = np.array([[1, 2, 3, 4, 5], [7, 2, 3, 4, 5]], np.int32)
    return ProbeScore(0, np.log(np.array([0.4, 0.2], np.float32)), ids, table(now, 0.2), table(start, 0.2), table(now, 0.2))


def test_tokens_on_the_probes_that_rose_and_fell(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", nothing(5, steps=1)).run_dir
    with RunWriter(folder) as writer:
        writer.probes([Probe(0, "The film " * 20, [" is", " fine"])], [probe_score(0.1, 0.1)])
        for step, now in ((2, 0.3), (3, 0.6)):
            writer.commit_step(StepRecord(step, {}, [], probes=[probe_score(now, 0.1)]))
    with RunWriter(folder) as writer:
        name = RunReader(folder).pieces()[7]
        writer.commit_step(StepRecord(4, {}, [], probes=[probe_score(0.02, 0.1)]))
    learning = Learning(RunReader(folder))
    (rose,) = learning.upto(3).rose
    assert (rose.probe, rose.position, rose.token) == (0, 1, name) and (rose.before, rose.after) == pytest.approx((0.1, 0.6))
    assert rose.context.startswith("…") and rose.context.endswith("film is") and len(rose.context) <= 61
    assert learning.upto(1).rose == [] and learning.upto(3).fell == []
    (fell,) = learning.upto().fell
    assert (fell.before, fell.after) == pytest.approx((0.1, 0.02))


def test_a_run_that_goes_on_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = planted([" A", " gem"], "ending")
    reader = write_run(tmp_path / "run", steps)
    learning, read = Learning(reader), []
    original = RunReader.episode_arrays
    monkeypatch.setattr(
        RunReader, "episode_arrays", lambda self, step, names: (read.append((step, len(names))), original(self, step, names))[1]
    )
    early = learning.upto(12)
    assert early == what_was_learned(reader, 12)
    assert early.after_steps == (10, 12)
    read.clear()
    assert learning.upto() == what_was_learned(write_run(tmp_path / "again", steps))
    responses = [step for step, names in read if names > 1]
    assert responses[: STEPS - 12] == list(range(13, STEPS + 1))
    read.clear()
    with RunWriter(reader.run_dir) as writer:
        writer.go_back(15)
    assert learning.upto() == what_was_learned(reader)
    assert learning.upto().after_steps == (13, 15)


def test_long_runs_are_thinned_to_steps_that_stay() -> None:
    for count in (1, 48, 49, 500, 5000):
        steps = thinned(range(1, count + 1))
        assert len(steps) <= 48 and steps[0] == 1 and steps[-1] > 0.95 * count - 1
        assert set(steps) >= set(thinned(range(1, 2 * count + 1))) & set(range(1, count + 1))


def test_a_run_without_responses_has_learned_nothing_yet(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", []).run_dir
    assert what_was_learned(RunReader(folder)).phrases == []
    with RunWriter(folder) as writer:
        writer.commit_step(StepRecord(1, {}, []))
    learned = what_was_learned(RunReader(folder))
    assert (learned.before_steps, learned.traits, learned.gaps) == ((0, 0), [], [])


@pytest.mark.parametrize("episodes", [True, False])
def test_responses_without_a_token_have_no_phrases(episodes: bool, tmp_path: Path) -> None:
    assert what_was_learned(write_run(tmp_path / "run", [[[]] * 4] * 6, episodes=episodes, recorded=4)).phrases == []


def test_tokens_without_ids_are_told_apart_by_their_texts(tmp_path: Path) -> None:
    """A log of another program may give the pieces alone; their ids are then stored as -1."""
    source = ResponseSource(write_run(tmp_path / "run", nothing(0, steps=2), episodes=False))
    unknown = np.full(3, -1, np.int32)
    first, second = (
        source.numbered(ResponseTokens(0, "".join(pieces), True, pieces, unknown)) for pieces in (["a", "b", "a"], ["b", "c", "a"])
    )
    assert first[0] == first[2] == second[2] and first[1] == second[0] and len({*first, *second}) == 3
    assert [source.pieces[number] for number in second] == ["b", "c", "a"]


@pytest.mark.parametrize("failed", [1, 3])
def test_a_step_whose_responses_failed_does_not_hide_the_episodes_of_the_others(failed: int, tmp_path: Path) -> None:
    responses = nothing(0, steps=2)
    reader = write_run(tmp_path / "run", responses, recorded=2)
    stored, recorded = reader.episodes(1, 2), reader.rollouts(1)
    create_run(tmp_path / "gap", RunConfig(), name="gap")
    with RunWriter(tmp_path / "gap") as writer:
        for step in (1, 2, 3):
            if step == failed:
                writer.commit_step(StepRecord(step, {"time/total": 1.0}, [], []))
            else:
                writer.commit_step(StepRecord(step, {"objective/scores": 0.0}, recorded, [], episodes=stored[1 if failed == 3 else 2]))
    source = ResponseSource(RunReader(tmp_path / "gap"))
    loaded = source.load(source.steps_to_read(None))
    assert [(tokens.step, len(tokens.lengths)) for tokens in loaded] == [(step, 12) for step in (1, 2, 3) if step != failed]


def test_episodes_are_read_where_no_response_was_recorded_by_itself(tmp_path: Path) -> None:
    source = ResponseSource(write_run(tmp_path / "run", nothing(0, steps=2), recorded=0))
    assert source.steps_to_read(None) == [1, 2] and source.all_episodes
