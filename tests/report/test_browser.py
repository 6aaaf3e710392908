"""The page in a real browser."""

from __future__ import annotations

import pytest

from flanders.report import write_html
from flanders.report.run_reading import read_results


@pytest.fixture
def report(results, tmp_path):
    write_html(results, tmp_path / "report.html")
    return tmp_path / "report.html"


def names(page):
    return page.locator("#runs tbody td.name").all_inner_texts()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_errors_or_requests_and_fits(report, open_page, width, scheme):
    page, problems = open_page(report, width, scheme)
    assert not problems
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#lines svg path.series").count() == 2
    assert page.locator("#lines svg path.free").count() == 1
    assert page.locator("#heat canvas.cells").is_visible()
    assert page.locator("#scores svg rect").count() > 3
    assert page.locator("#time .bar").count() == 2
    small = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => e.childElementCount === 0 && e.textContent.trim() && "
        "e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 11).length"
    )
    assert small == 0


def test_text_stands_out_from_its_background(report, open_page):
    for scheme in ("light", "dark"):
        page, _ = open_page(report, 1280, scheme)
        ratios = page.evaluate("""() => {
            const light = (hex) => { const c = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
                .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
            const css = (name) => light(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
            const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            const both = (n) => Math.min(ratio(css(n), css('--card')), ratio(css(n), css('--page')));
            return { text: ['--ink', '--soft', '--accent'].map(both),
                lines: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => ratio(css('--s' + i), css('--card'))) };
        }""")
        assert min(ratios["text"]) >= 4.5
        assert min(ratios["lines"]) >= 3


def test_the_table_sorts_by_mouse_and_by_keyboard(report, open_page):
    page, _ = open_page(report, 1280)
    header = page.locator('#runs th[data-key="final"]')
    given = names(page)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert names(page)[-1] == "fedavg · lie 80%"
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert names(page)[0] == "fedavg · lie 80%"
    page.locator('#runs th[data-key="label"] button').click()
    assert names(page) == sorted(given)
    page.locator('#runs th[data-key="precision"] button').click()
    assert names(page)[0] == "flanders + fedavg · lie 80%"  # runs without a precision come last


def test_the_table_filters_by_all_words(report, open_page):
    page, problems = open_page(report, 1280)
    page.fill("#filter", "LIE flanders")
    assert names(page) == ["flanders + fedavg · lie 80%"]
    assert page.locator("#matches").inner_text() == "1 of 3 runs"
    page.fill("#filter", "nothing like it")
    assert "No run matches" in page.locator("#runs tbody").inner_text()
    page.fill("#filter", "")
    assert len(names(page)) == 3
    assert not problems


def test_another_run_can_be_chosen_and_others_compared(report, open_page):
    page, problems = open_page(report, 1280)
    page.select_option("#run", "1")
    assert "No filter judged" in page.locator("#heat-lede").inner_text()
    assert "no scores to compare" in page.locator("#scores").inner_text()
    page.locator("#runs tbody td.name button").first.click()
    assert page.locator("#run").input_value() == "0"
    assert "attack-free" in page.locator("#lines-lede").inner_text()
    page.locator("#next").click()
    page.locator("#runs tbody input").first.check()
    assert page.locator("#lines svg path.series").count() == 3
    page.get_by_role("button", name="Loss").click()
    assert page.locator("#lines-title").inner_text() == "Loss over rounds"
    assert not problems


def test_pointing_at_a_cell_tells_its_client_round_and_score(report, open_page, results):
    page, problems = open_page(report, 1280)
    run = read_results(results)[2]
    wide = min(48, (page.locator("#heat").evaluate("e => e.clientWidth") - 48) / 6)
    page.locator("#heat canvas.cells").hover(position={"x": 44 + 2.5 * wide, "y": 3.5 * 24})
    words = page.locator("#tip").inner_text()
    assert "Client 3, round 3" in words
    assert f"score\n{run.score[3, 2]:.4g}" in words
    assert ("malicious\nyes" in words) == bool(run.malicious[3, 2])
    assert ("fate\nkept" in words) == bool(run.kept[3, 2])
    assert ("reason\nscore" in words) == (not run.kept[3, 2])
    assert "probability of malice" in words
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#round-name").inner_text() == "round 3"
    page.locator("#heat canvas.cells").focus()
    page.keyboard.press("ArrowDown")
    assert "Client 4, round 3" in page.locator("#heat-readout").inner_text()
    assert not problems


def test_a_round_can_be_picked_for_the_distributions(report, open_page):
    page, problems = open_page(report, 1280)
    assert "median threshold" in page.locator("#scores-lede").inner_text()
    page.locator("#round").focus()
    page.keyboard.press("Home")
    assert "Nobody was scored in round 1" in page.locator("#scores").inner_text()
    page.keyboard.press("ArrowRight")
    assert "largest score that was kept" in page.locator("#scores-lede").inner_text()
    page.locator("#all-rounds").click()
    assert page.locator("#round-name").inner_text() == ""
    assert not problems


def test_the_names_of_the_groups_stand_out_from_the_bars_behind_them(report, open_page):
    page, problems = open_page(report, 1280)
    label = page.locator("#scores text", has_text="malicious (")
    halo = label.evaluate("text => getComputedStyle(text).stroke")
    assert halo == page.locator(".card").first.evaluate("card => getComputedStyle(card).backgroundColor")
    assert not problems


def test_the_page_follows_the_window(report, open_page):
    page, problems = open_page(report, 1280)
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.querySelector('#lines svg').viewBox.baseVal.width < 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not problems
