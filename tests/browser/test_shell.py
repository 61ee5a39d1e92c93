"""What lies around the pages, in a real browser: addresses of the tabs, the theme, the sheet of shortcuts, the way past the tabs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.visiting.modes import Mode

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    app = launch(tmp_path_factory.mktemp("workspace"), mode=Mode.READ_ONLY)
    yield app
    app.close()


def tab(page: Any, name: str) -> Any:
    return page.get_by_role("tab", name=name, exact=True)


def selected(page: Any) -> str:
    return str(page.locator('#pages [role="tab"][aria-selected="true"]').inner_text())


def test_every_tab_has_an_address(open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train")
    page.wait_for_selector(".rs-recipe")
    tab(page, "Runs").click()
    page.wait_for_url("**/?tab=runs*")
    tab(page, "Live").click()
    page.wait_for_url("**/?tab=live*")
    page.go_back()
    page.wait_for_url("**/?tab=runs*")
    assert selected(page) == "Runs"
    page.go_back()
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]').dataset.tabId === 'train'")
    page.go_forward()
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]').dataset.tabId === 'runs'")
    page.reload()
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]')?.dataset.tabId === 'runs'")


def test_where_nothing_can_be_started_the_runs_come_first(open_page: Callable[..., Any]) -> None:
    """Recorded ones where there are no others."""
    page = open_page()
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]')?.dataset.tabId === 'runs'")
    page.locator("#runs-page").get_by_text("A run that improves").first.wait_for()


def test_a_link_to_a_run_opens_live_and_keeps_what_else_the_address_says(open_page: Callable[..., Any]) -> None:
    page = open_page("?run=20261121-000000-abcdef&view=1")
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]')?.dataset.tabId === 'live'")
    page.get_by_text("This run is not here").wait_for()
    tab(page, "Runs").click()
    page.wait_for_url("**/?tab=runs&view=1")
    page.go_back()
    page.wait_for_url("**run=20261121-000000-abcdef**")


def test_who_follows_a_teacher_is_led_by_the_page_s_own_parameters_alone(open_page: Callable[..., Any]) -> None:
    """Others, such as a token or ``view``, would stay in the address for all pages and for good."""
    page = open_page("?tab=train")
    page.wait_for_selector(".rs-recipe")
    script = page.locator('link[data-script="shared/address.js"]').get_attribute("href")
    sent = {"run": "20261121-000000-abcdef", "view": "1", "operator": "x", "class": "x", "tab": "runs", "__proto__": "x"}
    page.evaluate("async ([script, sent]) => (await import(script)).address.lead('live', sent)", [script, sent])
    page.wait_for_url("**/?tab=live&run=20261121-000000-abcdef")


def test_the_theme_is_chosen_and_remembered(open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train")
    button = page.get_by_role("button", name="Theme")
    button.click()  # from "as the system" to light
    assert page.evaluate("document.body.classList.contains('dark')") is False
    button.click()
    assert page.evaluate("document.body.classList.contains('dark')") is True
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate("document.body.classList.contains('dark')") is True


def test_the_keyboard_finds_the_sheet_and_the_way_past_the_tabs(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.locator("#runs-page table").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#runs-page') !== null")
    tab(page, "Train").click()
    page.wait_for_selector(".rs-recipe")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('dialog[open]')")
    page.locator('[data-section="ppo"] > summary').click()
    page.locator(".rs-train input:not([type=checkbox], [type=radio]):visible").first.focus()
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 0


@pytest.mark.long
def test_links_of_what_was_made_keep_the_focus_while_more_is_made(open_page: Callable[..., Any]) -> None:
    """The dialog "Take it home", which several pages share, asks again and again while an export works; the server here is a stand-in."""
    page = open_page("?tab=runs")
    script = page.locator('link[data-script="export/take_home.js"]')
    script.wait_for(state="attached")
    page.evaluate(
        """async (address) => {
          const { TakeHome } = await import(address);
          const files = [{ name: "a.zip", bytes: 10 }, { name: "b.zip", bytes: 20 }];
          const job = { state: "working", number: 1, progress: "", fraction: 0.5 };
          const base = { operator: true, checkpoints: [], push: false, adapter: false, best: null, why_not: "" };
          window.looks = 0;
          window.made = files;
          const export_look = async () => ({ ...base, job: { ...job, progress: `Part ${++window.looks}` }, files: window.made });
          new TakeHome({ host: document.body, server: { export_look }, api: "/gradio_api" }).open({ run: "r", name: "r" });
        }""",
        script.get_attribute("href"),
    )
    page.get_by_role("link", name="b.zip").focus()
    focused = "document.activeElement.textContent"
    looks = page.evaluate("window.looks")
    page.wait_for_function("before => window.looks > before + 1", arg=looks)
    assert page.evaluate(focused) == "b.zip"
    page.evaluate("window.made = [{ name: 'new.zip', bytes: 5 }, ...window.made]")
    page.get_by_role("link", name="new.zip").wait_for()
    assert page.evaluate(focused) == "b.zip"
    page.evaluate("window.made = []")
    page.get_by_role("link", name="b.zip").wait_for(state="detached")
    page.wait_for_function("document.querySelector('.rs-take').contains(document.activeElement)")
