"""The report in a browser: tables that sort, filter and page, and the way from a finding to its
session and to its events."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from parley._pipeline.report.cells import page_id
from parley._pipeline.report.page import render
from parley._pipeline.report.report_data import NodeRow
from tests.browser import NEEDS_BROWSER, chromium
from tests.pipeline.report.page_data import ONE, hostile_figures

pytestmark = NEEDS_BROWSER
NODES = 500


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    rows = [NodeRow(f"{at:052}", True, 1, at, 2_000 * at, 0, 0, at % 2) for at in range(NODES)]
    file = tmp_path_factory.mktemp("report") / "report.html"
    figures = replace(hostile_figures(), nodes=NODES, node_rows=rows)
    file.write_text(render(figures), encoding="utf-8", errors="backslashreplace")
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.get(file.as_uri())
        yield driver


def nodes(page: WebDriver) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, "#nodes .wide")


def firsts(page: WebDriver) -> list[int]:
    """The nodes that the table of nodes shows, by their numbers."""
    ids = nodes(page).find_elements(By.CSS_SELECTOR, "tbody td:nth-child(2)")
    return [int(one.text) for one in ids]


def press(page: WebDriver, label: str) -> None:
    page.find_element(By.CSS_SELECTOR, f"#nodes .controls [aria-label='{label}']").click()


def test_a_table_of_500_nodes_is_turned_sorted_and_filtered(page: WebDriver) -> None:
    assert firsts(page) == list(range(25))
    press(page, "Next rows")
    assert firsts(page) == list(range(25, 50))
    # By the number, and not by its text: 977 KiB are more than 2 KiB.
    head = nodes(page).find_element(By.XPATH, ".//thead//button[text()='Sent']")
    head.click()
    head.click()
    assert firsts(page)[:3] == [499, 498, 497]
    assert head.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    search = page.find_element(By.CSS_SELECTOR, "#nodes .controls input")
    search.send_keys(f"{42:052}")
    assert firsts(page) == [42]
    search.clear()
    search.send_keys("nowhere")
    assert firsts(page) == []
    assert "Nothing found" in page.find_element(By.CSS_SELECTOR, "#nodes .controls").text


def test_a_finding_leads_to_its_session_and_its_events(page: WebDriver) -> None:
    session = page.find_element(By.ID, page_id("5e" * 32))
    assert not session.is_displayed()
    page.find_element(By.CSS_SELECTOR, f"#findings a[href='#{page_id('5e' * 32)}']").click()
    assert session.is_displayed()
    assert "1 finding about this session." in session.text
    assert session.find_elements(By.XPATH, ".//td[code='call']")
    session.find_element(By.LINK_TEXT, "← Findings").click()
    assert not session.is_displayed()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_but_tables_and_pictures_is_wider_than_the_page(
    page: WebDriver, width: int
) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_script("location.hash = arguments[0]", page_id("5e" * 32))
    for caption in page.find_elements(By.CSS_SELECTOR, "caption div"):
        if caption.is_displayed():  # A session's page is in a frame.
            frame = caption.find_element(By.XPATH, "ancestor::div[@class='wide']")
            right = frame.rect["x"] + frame.rect["width"]
            assert caption.rect["x"] + caption.rect["width"] <= right + 1, caption.text
    page.execute_script("location.hash = ''")


def test_what_to_do_about_a_finding_is_in_sight(page: WebDriver) -> None:
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    kinds = page.find_element(By.CSS_SELECTOR, "#findings .wide")
    assert kinds.find_elements(By.TAG_NAME, "th")[7].text == "Advice"
    assert kinds.get_property("scrollWidth") == kinds.get_property("clientWidth")


def test_nothing_was_refused_or_loaded(page: WebDriver) -> None:
    """No injected script ran, and the policy allows only the page's own."""
    assert page.get_log("browser") == []  # type: ignore[no-untyped-call]  # selenium's
    assert ONE in page.page_source
