"""The page in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.report import write_html
from flanders.report.run_reading import read_results

LIE = {"name": "lie"}


@pytest.fixture
def report(results, tmp_path):
    write_html(results, tmp_path / "report.html")
    return tmp_path / "report.html"


def names(page):
    return page.locator("#runs tbody td.name")


def open_run(page, label):
    """Go from the overview to a run, by its name in the table of runs."""
    page.locator("#runs td.name a", has_text=label).first.click()
    expect(page.locator("#view-run")).to_be_visible()


def order_heat_map_by_id(page):
    """Choose the order, and wait until a new heat map has taken the place of the old one."""
    page.locator("#heat canvas.cells").evaluate("canvas => { canvas.dataset.old = ''; }")
    page.select_option("#heat-order", "id")
    expect(page.locator("#heat canvas.cells:not([data-old])")).to_be_visible()


def expect_fit(page, width):
    """Wait until nothing is wider than the window."""
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


def expect_at_least(count, locator):
    expect(locator.nth(count - 1)).to_be_attached()


def expect_if(condition, locator, words):
    """Expect that an element that is drawn already says something, or that it does not."""
    expected = expect(locator)
    (expected.to_contain_text if condition else expected.not_to_contain_text)(words, use_inner_text=True)


SMALL = (
    "[...document.querySelectorAll('body *')].filter(e => e.childElementCount === 0 && e.textContent.trim() && "
    "e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 11).length"
)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_without_errors_or_requests_and_fits(report, open_page, width, scheme):
    page, problems = open_page(report, width, scheme)
    expect(page.locator(".grid a.cell")).to_have_count(3)
    expect_fit(page, width)
    assert page.evaluate(SMALL) == 0
    open_run(page, "flanders + fedavg · lie 80%")
    expect(page.locator("#lines svg path.series")).to_have_count(2)
    expect(page.locator("#lines svg path.free")).to_have_count(1)
    expect(page.locator("#heat canvas.cells")).to_be_visible()
    expect_at_least(2, page.locator("#rounds svg path"))
    expect_at_least(4, page.locator("#scores svg rect"))
    expect(page.locator("#time .bar")).to_have_count(2)
    expect_fit(page, width)
    assert page.evaluate(SMALL) == 0
    page.locator("#clients tbody a").first.click()
    expect_at_least(2, page.locator("#client-scores svg circle"))
    expect(page.locator("#history tbody tr")).to_have_count(6)
    expect_fit(page, width)
    assert page.evaluate(SMALL) == 0
    assert not problems


def test_the_way_leads_from_the_overview_to_a_cell_to_a_client_to_the_reason(report, open_page, results):
    page, problems = open_page(report, 1280)
    run = read_results(results)[2]
    expect(page).to_have_title("results.sqlite – flanders report")
    cell = page.locator(".grid tbody tr", has_text="lie 80%").locator("a.cell").nth(1)
    expect(cell.locator("b")).to_have_text(f"{100 * run.accuracy[-1]:.1f}".removesuffix(".0") + "%")
    cell.click()
    expect(page).to_have_title("flanders + fedavg, lie 80% · results.sqlite – flanders report")
    worst = int(run.not_kept.argmax())
    row = page.locator("#clients tbody tr").first
    expect(row.locator("th")).to_have_text(str(worst))
    expect(row).to_contain_text(f"dropped in {run.not_kept[worst]} of 6 rounds")
    expect(row.locator(".why")).to_contain_text("the largest score of a kept client")
    row.locator("a").click()
    expect(page.locator("#heading")).to_have_text(f"Client {worst}")
    expect(page).to_have_title(f"Client {worst} · results.sqlite – flanders report")
    expect(page.locator("#client-reasons")).to_contain_text("dropped")
    last = page.locator("#history tbody tr").first
    expect_if(not run.kept[worst, -1], last, "dropped")
    page.go_back()
    expect(page.locator("#view-run")).to_be_visible()
    page.locator("#crumbs a", has_text="Overview").click()
    expect(page.locator("#view-overview")).to_be_visible()
    assert not problems


def test_the_overview_has_the_mean_over_seeds_and_a_cell_leads_to_each_of_them(
    write, make_spec, make_rounds, rng, tmp_path, open_page
):
    runs = [(make_spec(attack=LIE, seed=s), make_rounds(rng, clients=5, rounds=3), "done") for s in (0, 1)]
    runs.append((make_spec(seed=0), make_rounds(rng, clients=5, rounds=2, malicious=0), "running"))
    results = write(tmp_path / "seeds.sqlite", runs)
    write_html(results, tmp_path / "seeds.html")
    page, problems = open_page(tmp_path / "seeds.html", 1280)
    found = read_results(results)
    accuracies = [run.accuracy[-1] for run in found]
    cells = page.locator(".grid a.cell")
    mean = f"{50 * (accuracies[0] + accuracies[1]):.1f}".removesuffix(".0")
    expect(cells.first).to_have_text(re.compile(rf"^{re.escape(mean)}%"))
    expect(cells.first).to_have_text(re.compile(" to "))
    expect(cells.nth(1)).to_contain_text("so far")
    cells.first.click()
    expect(page.locator("#seeds a")).to_have_text(["seed 0", "seed 1"])
    page.locator("#seeds a").nth(1).click()
    expect(page.locator("#seeds a[aria-current]")).to_have_text("seed 1")
    expect(page.locator("#summary")).to_contain_text("seed 1")
    assert not problems


def test_all_defences_are_drawn_or_the_page_says_how_many_are_not(
    write, make_spec, make_rounds, rng, tmp_path, open_page
):
    filters = [{"name": "flanders", "keep": keep} for keep in range(10, 21)]
    runs = [(make_spec(attack=LIE, filter=f), make_rounds(rng, clients=4, rounds=2), "done") for f in filters]
    write_html(write(tmp_path / "many.sqlite", runs), tmp_path / "many.html")
    page, problems = open_page(tmp_path / "many.html", 1280)
    page.locator(".grid a.cell").last.click()
    expect(page.locator("#lines svg path.series")).to_have_count(8)
    expect(page.locator("#lines-lede")).to_contain_text("8 of the 11 defences")
    expect(page.locator("#lines svg path.chosen")).to_have_count(1)
    assert not problems


def test_the_first_round_with_an_attack_is_marked(write, make_spec, make_rounds, rng, tmp_path, open_page):
    spec = make_spec(attack=LIE)
    spec["threat"]["start"] = 3
    write_html(
        write(tmp_path / "start.sqlite", [(spec, make_rounds(rng, clients=5, rounds=5), "done")]),
        tmp_path / "s.html",
    )
    page, problems = open_page(tmp_path / "s.html", 1280)
    for chart in ("#lines", "#rounds"):
        expect(page.locator(f"{chart} text.start-name")).to_have_text("attack from round 3")
    expect(page.locator("#heat .begin")).to_have_count(1)
    expect(page.locator("#heat-legend")).to_contain_text("attack from round 3")
    assert not problems


HOSTILE = ["<img src=x onerror=alert(1)>", "node-\u202e-evil", "</script><script>alert(2)</script>", "x" * 400]


def test_names_and_reasons_of_hostile_clients_are_only_text(write, make_spec, tmp_path, open_page):
    clients = (
        ClientRecord("ann", Fate.KEPT),
        *(ClientRecord(id_, Fate.DROPPED, 9.0, reason=id_) for id_ in HOSTILE),
    )
    rounds = [RoundRecord(n, clients, note=HOSTILE[0]) for n in (1, 2, 3)]
    path = write(tmp_path / "hostile.sqlite", [(make_spec(), rounds, "running")])
    write_html(path, tmp_path / "hostile.html")
    page, problems = open_page(tmp_path / "hostile.html", 390)
    expect_fit(page, 390)
    expect(page.locator("#alarms")).to_be_visible()
    for i in range(len(HOSTILE)):
        page.locator("#clients tbody a").nth(i).click()
        expect(page.locator("#view-client")).to_be_visible()
        expect(page.locator("#history tbody tr")).to_have_count(3)
        expect_fit(page, 390)
        page.go_back()
        expect(page.locator("#view-run")).to_be_visible()
    expect(page.locator("img")).to_have_count(0)
    assert "\u202e" not in page.locator("body").inner_text()
    assert not problems


def test_names_that_end_alike_are_told_apart(write, make_spec, make_rounds, rng, tmp_path, open_page):
    ids = ["federation-a-node-00001", "federation-b-node-00001", 7, "7"]
    rounds = [RoundRecord(1, tuple(ClientRecord(id_, Fate.DROPPED, float(i)) for i, id_ in enumerate(ids)))]
    write_html(write(tmp_path / "alike.sqlite", [(make_spec(), rounds, "done")]), tmp_path / "alike.html")
    page, problems = open_page(tmp_path / "alike.html", 1280)
    expect(page.locator("#clients tbody th")).to_have_count(4)
    shown = page.locator("#clients tbody th").all_inner_texts()
    assert len(set(shown)) == 4
    assert {*ids[:2], "7"} <= set(shown)
    assert not problems


def test_long_numbers_of_nodes_are_not_rounded(write, make_spec, tmp_path, open_page):
    ids = [2**62 + 1, 2**62 + 2]
    rounds = [
        RoundRecord(n, (ClientRecord("ann", Fate.KEPT), *(ClientRecord(i, Fate.DROPPED) for i in ids)))
        for n in (1, 2, 3)
    ]
    write_html(write(tmp_path / "nodes.sqlite", [(make_spec(), rounds, "running")]), tmp_path / "nodes.html")
    page, problems = open_page(tmp_path / "nodes.html", 1280)
    expect(page.locator("#clients tbody th")).to_have_text([*map(str, ids), "ann"])
    page.locator("#alarms a", has_text=str(ids[1])).click()
    expect(page.locator("#heading")).to_have_text(f"Client {ids[1]}")
    expect(page.locator("#history tbody tr")).to_have_count(3)
    assert not problems


def test_touch_reads_a_cell_and_opens_its_client(report, open_page, results):
    page, problems = open_page(report, 390, touch=True)
    run = read_results(results)[2]
    page.locator(".grid a.cell").last.tap()
    order_heat_map_by_id(page)
    canvas = page.locator("#heat canvas.cells")
    canvas.scroll_into_view_if_needed()
    wide = (page.locator("#heat").evaluate("e => e.clientWidth") - 48) / 6
    canvas.tap(position={"x": 44 + 2.5 * wide, "y": 3.5 * 24})
    expect(page.locator("#tip")).to_contain_text("Client 3, round 3")
    expect(page.locator("#tip")).to_be_visible()
    expect_if(not run.kept[3, 2], page.locator("#tip"), "reason")
    page.locator("#heat-title").tap()
    expect(page.locator("#tip")).to_be_hidden()
    page.locator("#heat-readout a").tap()
    expect(page.locator("#heading")).to_have_text("Client 3")
    assert not problems


def test_clients_can_be_found_by_name_and_reason_and_sorted(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    expect(page.locator("#clients tbody tr")).to_have_count(20)
    page.fill("#clients-filter", "no such client")
    expect(page.locator("#clients")).to_contain_text("No client matches")
    page.fill("#clients-filter", "SCORE")
    expect_at_least(4, page.locator("#clients tbody tr"))
    page.fill("#clients-filter", "")
    page.select_option("#clients-order", "id")
    expect(page.locator("#clients tbody th")).to_have_text([str(i) for i in range(20)])
    assert not problems


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
    expect(names(page)).to_have_count(3)
    given = names(page).all_inner_texts()
    header.locator("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(names(page).last).to_have_text("fedavg · lie 80%")
    header.locator("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(names(page).first).to_have_text("fedavg · lie 80%")
    page.locator('#runs th[data-key="label"] button').click()
    expect(names(page)).to_have_text(sorted(given))
    page.locator('#runs th[data-key="precision"] button').click()
    expect(names(page).first).to_have_text("flanders + fedavg · lie 80%")  # runs without a precision come last


def test_the_table_filters_by_all_words(report, open_page):
    page, problems = open_page(report, 1280)
    page.fill("#filter", "LIE flanders")
    expect(names(page)).to_have_text(["flanders + fedavg · lie 80%"])
    expect(page.locator("#matches")).to_have_text("1 of 3 runs")
    page.fill("#filter", "nothing like it")
    expect(page.locator("#runs tbody")).to_contain_text("No run matches")
    page.fill("#filter", "")
    expect(names(page)).to_have_count(3)
    assert not problems


def test_another_run_can_be_chosen_and_others_compared(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    page.select_option("#run", "1")
    expect(page.locator("#heat-lede")).to_contain_text("No filter judged")
    expect(page.locator("#scores-card")).to_be_hidden()
    page.locator("#runs tbody td.name a").first.click()
    expect(page.locator("#run")).to_have_value("0")
    expect(page.locator("#lines-lede")).to_contain_text("attack-free")
    page.locator("#next").click()
    expect(page.locator("#run")).to_have_value("1")
    page.locator("#runs tbody input").first.check()
    expect(page.locator("#lines svg path.series")).to_have_count(3)
    page.get_by_role("button", name="Loss").click()
    expect(page.locator("#lines-title")).to_have_text("Loss over rounds")
    assert not problems


def test_pointing_at_a_cell_tells_its_client_round_and_score(report, open_page, results):
    page, problems = open_page(report, 1280)
    run = read_results(results)[2]
    open_run(page, "flanders + fedavg · lie 80%")
    order_heat_map_by_id(page)
    wide = min(48, (page.locator("#heat").evaluate("e => e.clientWidth") - 48) / 6)
    page.locator("#heat canvas.cells").hover(position={"x": 44 + 2.5 * wide, "y": 3.5 * 24})
    tip = page.locator("#tip")
    expect(tip).to_contain_text("Client 3, round 3")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text(re.compile(r"score\n" + re.escape(f"{run.score[3, 2]:.4g}")), use_inner_text=True)
    expect_if(run.malicious[3, 2], tip, re.compile(r"sent poison\nyes"))
    expect_if(run.kept[3, 2], tip, re.compile(r"fate\nkept"))
    expect_if(not run.kept[3, 2], tip, re.compile(r"reason\nscore"))
    expect(tip).to_contain_text("probability of malice")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#round-name")).to_have_text("round 3")
    page.mouse.move(0, 0)  # if the page scrolled, the mouse would point at another cell
    expect(tip).to_be_hidden()
    page.locator("#heat canvas.cells").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-readout")).to_contain_text("Client 4, round 3")
    page.keyboard.press("Enter")
    expect(page.locator("#heading")).to_have_text("Client 4")
    assert not problems


def test_a_round_can_be_picked_for_the_distributions(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    expect(page.locator("#scores-lede")).to_contain_text("median of these thresholds")
    page.locator("#round").focus()
    page.keyboard.press("Home")
    expect(page.locator("#scores")).to_contain_text("Nobody was scored in round 1")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#scores-lede")).to_contain_text("largest score of a kept client")
    page.locator("#all-rounds").click()
    expect(page.locator("#round-name")).to_have_text("")
    assert not problems


def test_the_names_of_the_groups_stand_out_from_the_bars_behind_them(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    label = page.locator("#scores text", has_text="malicious (")
    halo = label.evaluate("text => getComputedStyle(text).stroke")
    assert halo == page.locator("#scores-card").evaluate("card => getComputedStyle(card).backgroundColor")
    assert not problems


def test_the_page_follows_the_window(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.querySelector('#lines svg').viewBox.baseVal.width < 390")
    expect_fit(page, 390)
    assert not problems
