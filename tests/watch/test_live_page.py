"""The live page in a real browser, while a run is written."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from chromium import PATIENCE
from round_records import round_record

TOKEN = "correct horse battery staple"


@pytest.fixture
def visit(browser):
    """Opens an address; returns the page and a list of errors and of requests to anywhere else."""
    contexts = []

    def open_(url, width=1280, scheme="light", *, touch=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch, is_mobile=touch
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page, problems = context.new_page(), []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        here = urlsplit(url).netloc
        page.on(
            "request",
            lambda r: None if urlsplit(r.url).netloc == here or r.url == "data:," else problems.append(r.url),
        )
        page.goto(url)
        return page, problems

    yield open_
    for context in contexts:
        context.close()


def rounds_shown(page, count):
    expect(page.locator("#facts", has_text=f"{count} of 9")).to_be_visible()


def test_a_round_that_arrives_while_a_run_is_writing_is_shown_without_reload(serve, writer, visit):
    one = writer()
    one.write(2)
    page, problems = visit(serve())
    rounds_shown(page, 2)
    page.evaluate("() => { window.same = true; }")
    expect(page.locator("#clients tbody a")).to_have_count(4)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.locator("#alarms")).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text(re.compile(r"Accuracy so far\n52%"), use_inner_text=True)
    one.write()
    rounds_shown(page, 3)
    expect(page.locator("#alarms")).to_be_visible()
    expect(page.locator("#alarms")).to_contain_text("Client eve was dropped or refused 3 times in a row")
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    expect(page.locator("#live")).to_have_text("Live")
    eve = page.locator("#clients tbody tr", has_text="eve")
    expect(eve.get_by_text("dropped in 3 of 3 rounds")).to_have_count(1)
    one.write(last=True)
    expect(page.locator("#facts", has_text="Final accuracy")).to_be_visible()
    page.wait_for_event("request", lambda request: "/api/results" in request.url)  # the next one
    assert sum("/api/runs/" in url for url in asked) <= 2  # for the two rounds that came later
    assert page.evaluate("() => window.same")  # it is still the same page
    assert not problems


def test_a_clients_history_grows_while_it_is_looked_at(serve, writer, visit):
    one = writer()
    one.write(2)
    page, problems = visit(serve(), 390, "dark", touch=True)
    page.locator("#clients tbody a", has_text="eve").tap()
    expect(page.locator("#history tbody tr")).to_have_count(2)
    one.write(3)
    expect(page.locator("#history tbody tr")).to_have_count(5)
    expect(page.locator("#history tbody tr").nth(4)).to_be_visible()
    expect(page.locator("#heading")).to_have_text("Client eve")
    expect(page.locator("#client-reasons")).to_contain_text("5 times, in rounds 1–5")
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    assert not problems


def test_the_page_waits_for_a_file_that_is_not_there_yet(serve, writer, visit):
    page, problems = visit(serve())
    expect(page.locator("#nothing", has_text="There are no results")).to_be_visible()
    one = writer()
    one.write(2)
    rounds_shown(page, 2)
    assert not problems


def test_every_alarm_stands_out(serve, writer, visit):
    one = writer()
    one.write(kept=[False] * 4, stayed=True)
    one.write(stayed=True, note="FedAvg failed")
    one.write(weight=[900.0, 1.0, 1.0, 1.0])
    one.write(widening=2.25)
    page, problems = visit(serve())
    expect(page.locator("#alarms")).to_be_visible()
    for said in (
        "None of the 4 clients was kept",
        "FedAvg failed",
        "ann has 100% of the weight",
        "2.25 times as wide",
        "5 alarms",
    ):
        expect(page.locator("#alarms")).to_contain_text(said)
    assert not problems


def test_clients_and_rounds_that_come_later_join_the_heat_map(serve, writer, visit):
    one = writer()
    one.write(2)
    page, problems = visit(serve())
    rounds_shown(page, 2)
    one.number += 1
    clients = ["ann", "new-1", "new-2"]
    one.store.write_round(
        one.id, round_record(3, clients, kept=[True, False, True], score=[0.1, 5.0, 0.2], reason=["", "loud", ""])
    )
    expect(page.locator("#clients tbody tr", has_text="new-1").filter(has_text="loud")).to_be_visible()
    described = re.compile("^Anomaly scores of 6 clients in 3 rounds")
    expect(page.locator("#heat canvas.cells")).to_have_attribute("aria-label", described)
    expect(page.locator("#heat-legend")).to_contain_text("blank: not selected")
    assert not problems


def test_the_browser_gets_in_with_the_token_and_not_with_another(serve, writer, visit):
    one = writer()
    one.write(2)
    page, problems = visit(serve("0.0.0.0", TOKEN))
    expect(page).to_have_title("flanders watch")
    page.fill("#token", "a wrong token that is long enough")
    page.get_by_role("button", name="Enter").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    expect(page.locator("#report")).to_have_count(0)
    page.fill("#token", TOKEN)
    page.get_by_role("button", name="Enter").click()
    rounds_shown(page, 2)
    assert [p for p in problems if "401" not in p] == []  # the browser notes that the form came with 401


def test_hostile_names_and_reasons_are_only_text(serve, writer, visit):
    one = writer()
    names = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "ann"]
    for number in (1, 2, 3):
        one.store.write_round(
            one.id, round_record(number, names, kept=[False, False, True], reason=[*names[:2], ""], note=names[0])
        )
    page, problems = visit(serve())
    expect(page.locator("#alarms")).to_be_visible()
    expect(page.locator("#alarms")).to_contain_text("<img src=x")
    page.locator("#clients tbody a").first.click()
    expect(page.locator("#history tbody tr").first).to_be_visible()
    expect(page.locator("img")).to_have_count(0)
    assert not problems


def test_the_page_says_when_the_server_is_gone(serve, writer, visit):
    writer().write(2)
    page, _ = visit(serve())
    rounds_shown(page, 2)
    page.context.set_offline(True)
    expect(page.locator("#live", has_text="No answer")).to_be_visible()
    rounds_shown(page, 2)
    page.context.set_offline(False)
    expect(page.locator("#live", has_text="Live")).to_be_visible()
