"""The Live page alone in a small app, for the browser tests and for looking at it while developing.

By hand:  python tests/ui/live_app.py WORKSPACE --port 7870
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.context import Context
from starlette.middleware import Middleware

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import theme
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.lab.desk import Desk
from rlhf_studio.ui.live import page as live_page
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.replay import Replays
from rlhf_studio.ui.serving.caching import CachedAssets
from tests.ui import fake_insights


class LiveApp:
    """A served Live page with a Train and a Runs tab beside it. Close it when done."""

    def __init__(
        self, workspace: Path, access: Access | None = None, port: int | None = None, first_id: int = 0, verdict: str = "improving"
    ) -> None:
        self.workspace = workspace
        Context.id = first_id  # a restarted app numbers its components from the same start; another version may not
        self.feed = LiveFeed(Workspace(workspace), interval=0.1)
        self.verdict = verdict  # what the stand-in for the doctor says
        self.feed.insights = Insights(
            Workspace(workspace), find_analyses=lambda: fake_insights.analyses(lambda: self.verdict), rests=(0.1, 0.2)
        )
        self.polls = 0
        self.experiments: list[Any] = []  # what the page asked to start
        self.answer: dict[str, Any] = {}  # what it is told then
        self.silent = False  # whether it is told nothing
        ask = self.feed.poll

        def counted(position):
            self.polls += 1
            return ask(position)

        self.feed.poll = counted
        self.replays = Replays(Workspace(workspace))
        with gr.Blocks(title="RLHF Studio", fill_width=True) as self.demo, gr.Tabs(selected="live") as tabs:
            with gr.Tab("Train", id="train"):
                gr.Markdown("The form would be here.")
                run_to_open = gr.Textbox(label="run", elem_id="wanted")
                button = gr.Button("Open it", elem_id="open-it")
            with gr.Tab("Live", id="live"):
                lab: Any = SimpleNamespace(experiments=self)  # under the names that the page has in the whole app, and no others
                functions = [*Desk.ending_functions(lab), self.replays.replay]
                self.page = live_page.build(Workspace(workspace), self.feed, access or Access(), functions=functions)
            with gr.Tab("Runs", id="runs"):
                gr.Markdown("The table would be here.")
            self.page.connect_tabs(tabs, train="train", runs="runs")
            button.click(lambda run: (self.page.open(run), gr.Tabs(selected="live")), run_to_open, [self.page.component, tabs])
        self.demo.launch(
            prevent_thread_lock=True,
            quiet=True,
            server_name="127.0.0.1",
            server_port=port,
            theme=theme.theme(),
            css=theme.page_css(),
            footer_links=["gradio"],
            run_history=False,
            enable_monitoring=False,
            show_error=True,
            app_kwargs={"middleware": [Middleware(CachedAssets)]},
        )
        self.url = self.demo.local_url
        self.port = self.demo.server_port

    def experiment_ideas(self, data: Any, request: gr.Request) -> dict[str, Any]:
        """Stands in for the lab's function: one experiment."""
        idea = {"title": "Again without the KL penalty", "why": "Nothing holds it.", "how": "variation", "takes": "about 58 s"}
        return {"ideas": [{**idea, "changes": {"ppo.kl_coef": 0.0}, "sweep": {}}], "next": []}

    def experiment_form(self, data: Any, request: gr.Request) -> dict[str, Any]:
        """Stands in for the lab's function: the one setting that the page asks for."""
        return {"values": {"engine.seed": 6}}

    def experiment_start(self, data: Any, request: gr.Request) -> dict[str, Any]:
        """Stands in for the lab's function: keeps what was asked and starts nothing."""
        self.experiments.append(data)
        if self.silent:
            raise ConnectionError("no answer")
        return self.answer

    def close(self) -> None:
        """Stop the server and the feed."""
        self.demo.close(verbose=False)
        self.feed.close()
        self.replays.close()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    app = LiveApp(options.workspace, port=options.port)
    print(app.url, flush=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        app.close()


if __name__ == "__main__":
    main()
