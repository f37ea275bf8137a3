"""The console's page in a browser: contents, keys, names, actions, widths, and other sites."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from parley._node.bus.bus import Bus
from parley._node.bus.errors import BusUnavailableError
from parley._node.web.console.endpoints import ConsoleEndpoint, write_page
from parley._node.web.http_server import serve_asgi
from tests.browser import NEEDS_BROWSER, chromium
from tests.node.web.console.busy import HOSTILE, LONG, SCRIPT, Busy, busy, quiet

pytestmark = NEEDS_BROWSER

PATIENCE: Final = 20.0
VIEWS: Final = {
    "overview": "Overview",
    "peers": "Peers",
    "calls": "Calls",
    "topics": "Topics",
    "buses": "Buses",
    "journal": "Journal",
    "federation": "Federation",
    "findings": "Findings",
    "numbers": "Metrics",
}


class Page:
    """A console in the browser.

    Methods wait for the elements that they look for, and fail after a timeout.
    """

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def open(self, link: str, *, width: int = 1280, dark: bool = False) -> None:
        """Open a link, and wait until the node is shown."""
        self.look_as(width, dark=dark)
        self.driver.get("about:blank")
        self.driver.get(link)
        self.find("nav a[aria-current]")

    def look_as(self, width: int, *, dark: bool) -> None:
        """Set the width, and a light or dark colour scheme."""
        size = {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until `condition` is true, and return its value."""
        return WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition())

    def find(self, selector: str, text: str = "") -> WebElement:
        """Wait for the first element with the text, and return it."""

        def found() -> WebElement | None:
            script = (
                "return [...document.querySelectorAll(arguments[0])]"
                ".find((one) => one.textContent.includes(arguments[1])) ?? null"
            )
            one: WebElement | None = self.driver.execute_script(script, selector, text)
            return one

        element: WebElement = self.until(found)
        return element

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str, text: str = "") -> None:
        self.find(selector, text).click()

    def go(self, view: str) -> None:
        """Choose a view in the menu."""
        self.click(f'nav a[href="#{view}"]')
        self.find("h1", VIEWS[view])

    def press(self, *keys: str) -> None:
        """Press keys on the focused element."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def text(self, selector: str = "body") -> str:
        return str(
            self.driver.execute_script(
                "return document.querySelector(arguments[0]).textContent", selector
            )
        )

    def ask(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *given)

    def flows(self, title: str, row: str) -> bool:
        """Return whether a column of a row of a table shows current traffic."""
        script = (
            "[...document.querySelectorAll('tbody tr')].find((one) => one.textContent"
            ".includes(arguments[1])).querySelector(`td[data-title='${arguments[0]}']`).textContent"
        )
        return not self.ask(script, title, row).startswith("0 ")

    def complaints(self) -> list[str]:
        """Return the browser's messages: failed scripts, and content blocked by the policy."""
        return [line["message"] for line in self.log()]

    def log(self) -> list[dict[str, Any]]:
        """Return the log entries since the last call."""
        log: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call] # selenium's
        return log


@pytest.fixture
def anyio_backend() -> str:
    """Use one loop: the responses to a browser are the same on both (test_site.py)."""
    return "asyncio"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def page(driver: WebDriver) -> Page:
    made = Page(driver)
    made.log()  # Left by the previous test.
    return made


async def look(what: Callable[[Page], object], page: Page) -> None:
    """Use the page while the node runs."""
    await anyio.to_thread.run_sync(what, page)


@asynccontextmanager
async def calling(found: Busy) -> AsyncIterator[None]:
    """Make calls and publish notes to a subscriber inside the block."""

    async def call() -> None:
        while True:
            await found.peers[0].call("shop.order")
            await found.node.topics["prices"].publish(1)
            await anyio.sleep(0.02)

    async def read() -> None:
        async with found.peers[1].subscribe("prices") as notes:
            async for _ in notes:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        tasks.start_soon(read)
        yield
        tasks.cancel_scope.cancel()


async def test_everything_is_shown_and_nothing_of_it_is_markup(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with busy(tmp_path) as found, calling(found):

        def first(page: Page) -> None:
            page.open(found.served.link())
            assert page.ask("location.hash") == ""  # The token is no longer in the address.
            page.until(lambda: re.search(r"Calls[1-9]\d*/s", page.text(".tiles")))
            page.find(".concerns li", "3 dead letters")
            page.go("peers")
            page.find("td", HOSTILE.replace(" ", "_"))
            page.find("td", LONG[:100])
            for title in ("Bytes in", "Bytes out"):
                page.until(partial(page.flows, title, "shop-0"))
            page.click("td button.link", HOSTILE.replace(" ", "_"))
            for text in (SCRIPT, f"files.{SCRIPT}"):
                page.find("dialog li, dialog dd", text)
            page.press(Keys.ESCAPE)
            page.go("calls")
            page.find("td", "shop.order")
            page.until(lambda: re.search(r"[1-9]\.?\d* ms", page.text("tbody")))
            page.go("topics")
            page.find("td", f"news.{HOSTILE}")
            page.go("buses")
            page.find("h3", "shop.ordered")
            page.click("button.letters")
            page.find("dialog .why", HOSTILE)
            page.press(Keys.ESCAPE)
            page.go("journal")
            page.find("h1 + .beside", "writing")
            page.go("findings")
            page.find(".finding h2", HOSTILE)
            page.go("numbers")
            page.find("td", "calls_received")
            assert page.ask("document.title").startswith("Metrics")
            assert page.ask("document.images.length") == 1  # This server.
            assert page.ask("document.scripts.length") == 1
            assert page.complaints() == []

        def federation(page: Page) -> None:
            page.go("federation")
            page.until(lambda: len(page.all(".server")) == 7)
            assert len(page.all(".ways button")) == 2
            page.find(".chip", "2 tunnels")
            page.click(".ways button", "edge → hub")
            page.until(lambda: len(page.all(".edge.used")) == 3)
            names = [one.text.split()[0] for one in page.all(".side .way li")]
            assert names == ["edge", "far-west", "west", "hub"]
            page.click(".ways button", "edge → hub")
            page.until(lambda: not page.all(".edge.used"))
            east = page.find(".server", "east")
            page.driver.execute_script("arguments[0].focus()", east)
            page.press(Keys.ENTER)
            page.until(lambda: len(page.all(".edge.used")) == 2)
            assert page.complaints() == []

        await look(first, page)
        await look(federation, page)
    await look(lambda page: page.find(".alarm", "cannot be reached"), page)


async def test_graphs_have_axes_and_times_and_labels_are_the_usual_ones(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with busy(tmp_path) as found, calling(found):

        def use(page: Page) -> None:
            page.open(found.served.link())
            page.until(lambda: re.search(r"Calls[1-9]\d*/s", page.text(".tiles")))
            assert len(page.all(".tile .chart")) == len(page.all(".tile")) == 6
            for chart in page.all(".chart"):
                assert re.search(r" over the last \d+ min, at most ", chart.accessible_name)
            assert re.fullmatch(r"\d+ min ago", page.text(".tile .chart .x span"))
            highest = page.text('.tile[href="#calls"] .chart .y span')
            assert re.fullmatch(r"[\d.,]+k?/s", highest)
            for text in ("Uptime", "Trust policy", "Rejected connections"):
                page.find(".facts dt", text)
            page.go("calls")
            titles = [one.text for one in page.all("thead th")]
            assert titles == ["Topic", "Rate", "Total", "Results", "p50", "p95", "Latency"]
            bounds = [one.text for one in page.all("tbody tr:first-child .x span")]
            assert [one[:2] for one in bounds] == ["≤ ", "> "]
            page.go("journal")
            page.find(".card .chart .x", "min ago")

        await look(use, page)


async def test_empty_pages_say_what_to_do(tmp_path: Path, anyio_backend: Any, page: Page) -> None:
    async with quiet(tmp_path) as found:

        def use(page: Page) -> None:
            page.open(found.served.link())
            for view, example in (
                ("peers", "parley ping "),
                ("calls", "parley call ADDR NAME"),
                ("topics", "parley pub NAME"),
                ("buses", "parley serve --bus sqlite:///FILE"),
                ("journal", "parley serve --journal DIR --auditor KEY"),
                ("federation", "parley serve --link ADDR"),
            ):
                page.go(view)
                page.find(".empty code", example)

        await look(use, page)


VERDICT: Final = """
const done = arguments[0];
import("/static/overview.js").then(({ overviewView }) => {
    const node = { addresses: [], id: "x", role: "peer", trust: "any", uptime: 1, turned_away: 0 };
    const peers = { total: 0, parted: 0 };
    const view = { node, peers, buses: [], federation: null, journal: null };
    const said = (levels) => {
        const found = levels?.map((level) => ({ level, subject: "keys", text: level, mend: "" }));
        const [heading] = overviewView({ ...view, findings: found ?? null });
        return JSON.stringify(heading).match(/(no issues[^"]*|\\d+ issues?)/)[0];
    };
    const all = [[], ["ok"], ["note", "ok"], ["weak"], ["problem", "weak", "note"], null];
    done(all.map(said));
}, (error) => done(String(error)));
"""


async def test_the_verdict_includes_findings(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with quiet(tmp_path) as found:

        def use(page: Page) -> None:
            page.open(found.served.link())
            assert page.driver.execute_async_script(VERDICT) == [
                "no issues",
                "no issues",
                "no issues, 1 note in the findings",
                "1 issue",
                "2 issues",
                "no issues; findings are being checked",
            ]

        await look(use, page)


RATES: Final = """
const done = arguments[0];
import("/static/numbers.js").then(({ Past }) => {
    const past = new Past();
    const row = (key, received) => ({ key, received, sent: 0 });
    const add = (at, rows) => past.add({ at, numbers: [], peers: { total: 3, rows } });
    add(1, [row(1, 500)]);
    add(2, [row(1, 600)]);
    add(3, [row(1, 700), row(2, 9e9)]);
    const first = [1, 2, 3].map((key) => past.listedRate(`peer_received{${key}}`));
    add(4, [row(1, 800), row(2, 9e9 + 50)]);
    done([first, past.listedRate("peer_received{2}")]);
}, (error) => done(String(error)));
"""


async def test_unlisted_peer_has_no_rate(tmp_path: Path, anyio_backend: Any, page: Page) -> None:
    async with quiet(tmp_path) as found:

        def use(page: Page) -> None:
            page.open(found.served.link())
            assert page.driver.execute_async_script(RATES) == [[100, None, None], 50]

        await look(use, page)


async def test_a_link_opens_it_once_and_a_session_can_be_left(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with quiet(tmp_path) as found:

        def use(page: Page) -> None:
            link = found.served.link()
            page.open(link)
            page.go("peers")
            page.find(".empty", "No peers connected")
            page.open(found.served.url)  # The session still exists.
            assert page.ask("document.cookie") == ""
            page.click(".foot button", "Leave")
            page.find("h1", "needs a new link")
            page.driver.get("about:blank")
            page.driver.get(link)
            page.find("main p", "used before")
            page.open(found.served.link())
            # As with `parley console --open`.
            place = ConsoleEndpoint(found.served.url, str(found.node.node_id), "")
            page.click(".foot button", "Leave")
            page.find("h1", "needs a new link")
            page.open(write_page(tmp_path, place, found.served.link()).as_uri())
            assert page.ask("location.href") == f"{found.served.url}/"

        await look(use, page)


async def test_it_can_be_used_by_keys_alone(tmp_path: Path, anyio_backend: Any, page: Page) -> None:
    async with quiet(tmp_path, 5) as found:

        def use(page: Page) -> None:
            page.open(found.served.link())
            page.press(Keys.TAB)
            assert page.driver.switch_to.active_element.text == "Skip to the content"
            for number, title in enumerate(VIEWS.values(), 1):
                page.press(str(number))
                page.find("h1", title)
                assert len(page.all("h1")) == 1
            page.press("2")
            page.find("td", "shop-3")
            page.press("/")
            page.press("shop-3")
            page.until(lambda: len(page.all("tbody tr")) == 1)
            # A new view changes neither the focus nor the typed text.
            page.driver.execute_script("window.seen = performance.now()")
            page.until(lambda: page.ask("performance.now() - window.seen > 1500"))
            assert page.driver.switch_to.active_element.get_attribute("value") == "shop-3"
            page.press(Keys.TAB, Keys.TAB, Keys.TAB)
            page.until(lambda: page.ask("document.activeElement.className") == "sort")
            page.find("td button.link").send_keys(Keys.ENTER)
            page.find("dialog[open] h2", "shop-3")
            assert page.ask("document.activeElement.closest('dialog') !== null")
            page.press(Keys.ESCAPE)
            page.until(lambda: not page.all("dialog"))
            assert "shop-3" in page.driver.switch_to.active_element.accessible_name
            page.find("th button", "Streams").send_keys(Keys.ENTER)
            page.find("th[aria-sort=descending]", "Streams")
            page.press("?")
            page.find("dialog h2", "Keys")
            page.press(Keys.ESCAPE)
            assert page.complaints() == []

        await look(use, page)


async def test_everything_has_an_accessible_name(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with busy(tmp_path) as found:

        def use(page: Page) -> None:
            page.open(found.served.link(may_act=True))
            assert page.ask("document.documentElement.lang") == "en"
            for view in VIEWS:
                page.go(view)
                named(page)
                assert len(page.all("main")) == len(page.all("nav")) == 1
            page.go("buses")
            page.click("button.letters")
            page.find("dialog input")
            page.driver.execute_script(
                "document.querySelectorAll('details').forEach((one) => one.open = true)"
            )
            named(page, "dialog ")

        await look(use, page)


def named(page: Page, within: str = "") -> None:
    """Check that every control and landmark has a name, and that a dialog covers the others."""
    used = "button, input, summary, a, table, pre, [role=button], [role=img], [role=region]"
    for one in page.all(f"{within}:is({used})"):
        assert one.accessible_name or one.text, one.get_attribute("outerHTML")
    levels = page.ask(
        "[...document.querySelectorAll('main :is(h1,h2,h3)')].map((h) => +h.localName[1])"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


async def test_operator_can_act_with_an_action_link(
    tmp_path: Path, anyio_backend: Any, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **options: Any) -> None:
        raise BusUnavailableError("it is away")

    async with busy(tmp_path) as found:

        def only_look(page: Page) -> None:
            page.open(found.served.link())
            page.find(".foot .right", "Read-only")
            page.find("button.action:disabled", "Drain")
            page.go("peers")
            page.click("td button.link", "shop-3")
            page.find("dialog button.action:disabled", "Close")
            page.press(Keys.ESCAPE)

        def do(page: Page) -> None:
            page.open(found.served.link(may_act=True))
            page.go("peers")
            page.click("td button.link", "shop-3")
            page.click("dialog.panel button.action", "Close the connection")
            page.find("dialog.question p", "shop-3")
            page.press(Keys.ESCAPE)  # Dismissing the question has no effect.
            page.click("dialog.panel button.action", "Close the connection")
            page.click("dialog.question button.danger")
            page.find("#notices .good", "Closed the connection")
            page.until(lambda: "shop-3" not in page.text("tbody"))
            page.go("buses")
            with monkeypatch.context() as failing:
                failing.setattr(Bus, "dead_letters", fail)
                page.click("button.letters", "3 dead letters")
                page.find("dialog .alarm", "it is away")
                assert not page.all("dialog .letter, dialog .empty")
                failing.undo()
                failing.setattr(Bus, "drop_dead", fail)
                page.click("dialog button", "Try again")
                page.click("dialog button.action", "Drop all")
                page.click("dialog.question button.danger")
                page.find(
                    "#notices:popover-open .bad", "The action failed: it is away"
                )  # Above the panel.
            page.click("dialog input[type=checkbox]")
            page.click("dialog button.action", "Drop selected")
            page.click("dialog.question button.danger")
            page.until(lambda: len(page.all("dialog .letter")) == 2)
            page.click("dialog button.action", "Replay all")
            page.click("dialog.question button.danger")
            page.find("dialog .empty", "No dead letters")
            page.press(Keys.ESCAPE)
            page.go("overview")
            page.click("button.action", "Drain")
            page.click("dialog.question button.danger")
            page.find(".concerns li", "drains")

        await look(only_look, page)
        assert not found.drained.is_set()
        await look(do, page)
        assert found.drained.is_set()
        assert not found.peers[3].is_open
        assert found.bus is not None
        assert await found.bus.dead_letters("shop.ordered") == []


async def test_page_fits_every_width(tmp_path: Path, anyio_backend: Any, page: Page) -> None:
    async with busy(tmp_path, 60) as found:

        def use(page: Page) -> None:
            page.open(found.served.link())
            page.until(lambda: page.ask("document.querySelectorAll('.concerns li').length"))
            grounds = set()
            for width in (390, 1280):
                for dark in (False, True):
                    page.look_as(width, dark=dark)
                    grounds.add(page.ask("getComputedStyle(document.body).backgroundColor"))
                    for view in VIEWS:
                        page.go(view)
                        wide = page.ask("document.scrollingElement.scrollWidth")
                        assert wide <= width, (view, width)
            assert len(grounds) == 2
            page.go("peers")
            page.find(".pager", "Page 1 of 2")
            page.click(".pager button", "Next")
            page.find(".pager", "Page 2 of 2")
            page.click(".foot button", "Colours")
            page.until(lambda: page.ask("document.documentElement.dataset.theme") == "light")

        await look(use, page)


FOREIGN = """<!doctype html><title>elsewhere</title>
<iframe name="in" src="{url}/"></iframe>
<form method="post" action="{url}/api/do/drain" target="in" enctype="text/plain">
<input name='{{"a":"' value='"}}'></form>
<script>
const told = [];
const ask = (path, how) => fetch("{url}" + path, how).then(() => "answered", () => "refused");
Promise.all([
  ask("/api/peers", {{credentials: "include"}}),
  ask("/api/do/drain", {{method: "POST", credentials: "include"}}),
  ask("/api/do/drain", {{method: "POST", credentials: "include", body: "{{}}",
    headers: {{"content-type": "application/json", "x-parley-key": "x"}}}}),
  import("{url}/static/main.js").then(() => "answered", () => "refused"),
]).then((all) => {{ document.forms[0].submit(); document.title = all.join(" "); }});
</script>"""


async def test_a_page_of_another_port_of_this_machine_gets_nothing(
    tmp_path: Path, anyio_backend: Any, page: Page
) -> None:
    async with quiet(tmp_path) as found:

        async def answer(request: Request) -> Response:
            return HTMLResponse(FOREIGN.format(url=found.served.url))

        async with serve_asgi(Starlette(routes=[Route("/", answer)]), "127.0.0.1:0") as url:

            def use(page: Page) -> None:
                page.open(found.served.link(may_act=True))
                page.driver.get(f"{url}/")
                page.until(lambda: page.ask("document.title").count(" ") == 3)
                assert page.ask("document.title") == "refused refused refused refused"
                page.driver.switch_to.frame("in")
                assert not page.all("#app")  # The page must not be framed.
                page.driver.switch_to.default_content()
                page.open(found.served.url)  # The session is still valid.

            await look(use, page)
        assert not found.drained.is_set()
