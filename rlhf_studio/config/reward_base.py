"""What every reward component has: its settings, and as data on the class what the form, the checks and the program's start must know.

docs/rewards.md, "Adding a reward kind", says how the parts fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.permissions import Permissions

Group = Literal["Models", "Rules", "Against a reference", "Your own"]
"""Under which heading the form offers a kind; the headings stand in this order."""


class ComponentProblem(NamedTuple):
    """One thing that is wrong with a component: the name of its setting, and a sentence that says what would be right."""

    setting: str
    message: str


def weight_setting(default: float) -> Any:
    """A component's weight, for kinds whose default is not 1."""
    return setting(
        default, "Weight", "The component's score is multiplied by this before all are summed; negative turns it into a penalty.",
        level="basic", ge=-1000, le=1000,
    )  # fmt: skip


class Component(Section):
    """What every kind of reward component has. A kind sets the class variables and overrides the methods that it needs.

    Class variables:
        title: name of the kind in the form.
        group: heading under which the form offers it.
        used_when: setting -> (other setting, its value or values) for settings that matter only then; the form shows them then.
        one_per_line: settings that may hold several lines.
        takes_reference: whether it can compare with a reference text; the try-out then offers a field for one.
        outside: whether it runs code or asks a server of the person's own, which must be allowed at each start.
        asks_people: whether a run waits for people who rate its responses.
        counts_tokens: whether its score is computed from the response's length in tokens.
    """

    title: ClassVar[str]
    group: ClassVar[Group]
    used_when: ClassVar[Mapping[str, tuple[str, Any]]] = {}
    one_per_line: ClassVar[tuple[str, ...]] = ()
    takes_reference: ClassVar[bool] = False
    outside: ClassVar[bool] = False
    asks_people: ClassVar[bool] = False
    counts_tokens: ClassVar[bool] = False

    name: str = setting("", "Name", "Label of this component in charts and tables; empty takes its kind.", max_length=60)
    weight: float = weight_setting(1.0)

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """What is wrong with these settings, as far as it can be known before anything is loaded."""
        return iter(())

    def problems_with_batches(self, batch_size: int) -> Iterator[ComponentProblem]:
        """What is wrong when batches of this many responses are scored."""
        return iter(())

    def needs_reference(self) -> bool:
        """Whether each row of the data must have a reference text."""
        return self.takes_reference

    def model_names(self) -> list[str]:
        """The reward models that are loaded for it: folders or hub ids."""
        return []

    def files(self) -> list[str]:
        """Files that it reads, beside those of its models."""
        return []

    def start_flags(self) -> list[tuple[str, str]]:
        """(flag, value) pairs that the program must be started with. What only the person can know is written in capitals."""
        return []

    @classmethod
    def suggestions(cls, permissions: Permissions) -> dict[str, list[str]]:
        """Setting -> values that the form offers, from what the program was started with."""
        return {}

    def described(self) -> str:
        """What scores, in a few words for a sentence about the run."""
        return f"the {kind_of(type(self))} rule"


def kind_of(model: type[Component]) -> str:
    """The word that ``kind`` holds in settings of this class."""
    kind: str = model.model_fields["kind"].default
    return kind
