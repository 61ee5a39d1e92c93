"""The Live page of a run without a critic, trained for this: what only a critic gives is left out, not shown as 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config_io import config_to_yaml
from rlhf_studio.exit_codes import DONE
from rlhf_studio.runs.paths import run_dir
from tests.engine.conftest import small_config
from tests.ui.live_app import LiveApp

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    workspace, folder = tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("models")
    ppo = {"advantage": "rloo", "responses_per_prompt": 4, "steps": 3}
    (folder / "run.yaml").write_text(config_to_yaml(small_config(folder, ppo=ppo)), encoding="utf-8")
    assert main(["train", "--config", str(folder / "run.yaml"), "--run-dir", str(run_dir(workspace, "rloo"))]) == DONE
    app = LiveApp(workspace)
    yield app
    app.close()


def test_nothing_of_a_critic_is_shown(open_page: Any) -> None:
    page, expect = open_page("?tab=live&run=rloo"), playwright.expect
    expect(page.locator("[data-chart=loss]")).to_contain_text("Policy loss")
    expect(page.locator("[data-chart=critic]")).to_be_hidden()
    card = page.locator(".rs-formulas")
    expect(card).to_contain_text("There is no critic: every token of this response has the same advantage")
    expect(card).to_contain_text("the reward of the whole response, less the mean reward of the other responses to its prompt")
    titles = page.locator(".rs-numbers dt").all_text_contents()
    assert "Advantage" in titles and not {"Value", "Return", "Advantage, whitened"} & set(titles)
    offered = page.get_by_role("group", name="Colour tokens by").get_by_role("button").all_text_contents()
    assert any("Advantage" in label for label in offered) and not any("Value" in label or "Return" in label for label in offered)
