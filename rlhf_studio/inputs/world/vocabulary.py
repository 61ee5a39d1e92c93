"""The words of the review world: what its reviewers can say, and how much each phrase likes or dislikes the film.

Only tables. A phrase is plain lower-case text (names of places and days keep their capital). Strengths are grouped as
``strong`` and ``mild``; :mod:`rlhf_studio.inputs.world.grammar` gives them numbers.
"""

from __future__ import annotations

# --- what a review talks about -------------------------------------------------------------------------------------------

NOUNS: dict[str, tuple[str, ...]] = {
    "story": ("plot", "story"),
    "acting": ("acting", "cast"),
    "music": ("score", "soundtrack"),
    "camera": ("camera work", "photography"),
    "script": ("dialogue", "script"),
    "ending": ("ending", "finale"),
    "pace": ("pacing", "editing"),
    "humour": ("humour", "comic timing"),
}

# --- adjectives that fit every aspect: is superb, feels tired -----------------------------------------------------------

ANY_ADJECTIVE: dict[tuple[str, str], tuple[str, ...]] = {
    ("+", "strong"): ("superb", "wonderful", "magnificent", "stunning", "unforgettable", "flawless", "glorious", "extraordinary"),
    ("+", "mild"): ("charming", "confident", "thoughtful", "lively", "graceful", "fresh", "solid", "pleasing"),
    ("-", "mild"): ("weak", "dull", "clumsy", "stale", "tired", "awkward", "forgettable", "bland"),
    ("-", "strong"): ("dreadful", "terrible", "lifeless", "hopeless", "painful", "unbearable", "awful", "atrocious"),
}

# --- the same for nouns: is a triumph -------------------------------------------------------------------------------------

ANY_NOUN: dict[tuple[str, str], tuple[str, ...]] = {
    ("+", "strong"): ("a wonder", "a triumph"),
    ("+", "mild"): ("a delight", "a pleasure"),
    ("-", "mild"): ("a letdown", "a bore"),
    ("-", "strong"): ("a disaster", "an ordeal"),
}

# --- adjectives and verb phrases that fit one aspect only -----------------------------------------------------------------

ADJECTIVE: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("story", "+", "strong"): ("gripping", "spellbinding"),
    ("story", "+", "mild"): ("clever", "layered"),
    ("story", "-", "mild"): ("predictable", "muddled"),
    ("story", "-", "strong"): ("senseless", "incoherent"),
    ("acting", "+", "strong"): ("electrifying", "heartbreaking"),
    ("acting", "+", "mild"): ("warm", "nuanced"),
    ("acting", "-", "mild"): ("wooden", "stiff"),
    ("acting", "-", "strong"): ("laughable", "shameful"),
    ("music", "+", "strong"): ("haunting", "heavenly"),
    ("music", "+", "mild"): ("tender", "stirring"),
    ("music", "-", "mild"): ("grating", "repetitive"),
    ("music", "-", "strong"): ("deafening", "insufferable"),
    ("camera", "+", "strong"): ("breathtaking", "luminous"),
    ("camera", "+", "mild"): ("elegant", "crisp"),
    ("camera", "-", "mild"): ("shaky", "murky"),
    ("camera", "-", "strong"): ("nauseating", "amateurish"),
    ("script", "+", "strong"): ("brilliant", "dazzling"),
    ("script", "+", "mild"): ("witty", "sharp"),
    ("script", "-", "mild"): ("stilted", "wordy"),
    ("script", "-", "strong"): ("embarrassing", "idiotic"),
    ("ending", "+", "strong"): ("perfect", "sublime"),
    ("ending", "+", "mild"): ("moving", "satisfying"),
    ("ending", "-", "mild"): ("rushed", "hollow"),
    ("ending", "-", "strong"): ("infuriating", "insulting"),
    ("pace", "+", "strong"): ("hypnotic", "exhilarating"),
    ("pace", "+", "mild"): ("brisk", "patient"),
    ("pace", "-", "mild"): ("sluggish", "uneven"),
    ("pace", "-", "strong"): ("exhausting", "chaotic"),
    ("humour", "+", "strong"): ("hilarious", "irresistible"),
    ("humour", "+", "mild"): ("gentle", "sly"),
    ("humour", "-", "mild"): ("forced", "childish"),
    ("humour", "-", "strong"): ("cringeworthy", "tasteless"),
}

VERB_PHRASE: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("story", "+", "strong"): ("holds you until the last frame",),
    ("story", "+", "mild"): ("keeps you guessing",),
    ("story", "-", "mild"): ("goes nowhere",),
    ("story", "-", "strong"): ("falls apart after ten minutes",),
    ("acting", "+", "strong"): ("lights up the screen",),
    ("acting", "+", "mild"): ("carries every scene",),
    ("acting", "-", "mild"): ("never convinces",),
    ("acting", "-", "strong"): ("ruins every scene",),
    ("music", "+", "strong"): ("gave me goosebumps",),
    ("music", "+", "mild"): ("lingers for days",),
    ("music", "-", "mild"): ("drowns out the actors",),
    ("music", "-", "strong"): ("hurts the ears",),
    ("camera", "+", "strong"): ("turns every frame into a painting",),
    ("camera", "+", "mild"): ("glides through each room",),
    ("camera", "-", "mild"): ("misses half the action",),
    ("camera", "-", "strong"): ("makes you seasick",),
    ("script", "+", "strong"): ("sparkles from start to finish",),
    ("script", "+", "mild"): ("sounds like real people",),
    ("script", "-", "mild"): ("explains far too much",),
    ("script", "-", "strong"): ("insults the audience",),
    ("ending", "+", "strong"): ("moved me to tears",),
    ("ending", "+", "mild"): ("ties it all together",),
    ("ending", "-", "mild"): ("comes out of nowhere",),
    ("ending", "-", "strong"): ("spoils the whole film",),
    ("pace", "+", "strong"): ("leaves you breathless",),
    ("pace", "+", "mild"): ("gives each moment room",),
    ("pace", "-", "mild"): ("drags in the middle",),
    ("pace", "-", "strong"): ("puts you to sleep",),
    ("humour", "+", "strong"): ("had the whole room roaring",),
    ("humour", "+", "mild"): ("lands more often than not",),
    ("humour", "-", "mild"): ("misses every beat",),
    ("humour", "-", "strong"): ("died in total silence",),
}

# --- the last sentence ------------------------------------------------------------------------------------------------------

VERDICT: dict[tuple[str, str], tuple[str, ...]] = {
    ("+", "strong"): (
        "I loved every minute",
        "do not miss it",
        "I will treasure it for years",
        "the best film of the year",
        "cinema at its very best",
        "a masterpiece",
    ),
    ("+", "mild"): (
        "I would gladly watch it again",
        "well worth the ticket",
        "I left the cinema smiling",
        "a fine way to spend an evening",
        "I told all my friends",
    ),
    ("-", "mild"): (
        "I checked my watch twice",
        "I expected more",
        "once is enough",
        "wait for a rainy day",
        "I soon forgot about it",
    ),
    ("-", "strong"): (
        "I want my money back",
        "avoid it at all costs",
        "I walked out before the end",
        "the worst film of the year",
        "a complete waste of time",
        "a catastrophe",
    ),
}

# --- neutral openings: these words become the prompts ---------------------------------------------------------------------------

GENRES = (
    "western", "thriller", "musical", "drama", "romance", "documentary", "mystery", "ghost story", "heist film",
    "war film", "road movie", "crime film", "space opera", "costume drama", "spy film", "family film",
)  # fmt: skip
ORIGINS = ("Danish", "Korean", "French", "Mexican", "Polish", "Indian", "silent", "animated", "new", "old", "short", "independent")
TIMES = ("last night", "on Friday", "on a plane", "at a festival", "with my sister", "with two friends", "at home", "in an empty cinema")
FRAMES = (
    "I think",
    "to my mind",
    "for a first film ,",
    "for a sequel ,",
    "compared with the book ,",
    "on the big screen ,",
    "on a second viewing ,",
    "after the interval ,",
    "as a fan of the book I think",
    "my brother chose it and",
)
