"""The pages in a real browser: walked, sorted, in both themes, live, and without a word on the console.

With EVO_IMAGES=FOLDER the pictures of docs/images are taken again on the way.
"""

import io
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile import SHOWN, hostile
from small_runs import write_run

from evo.report.account import Account
from evo.report.page import report_page
from evo.report.reading import read_account
from evo.report.server import PageServer
from evo.report.watching import Watch
from population.archive import open_archive
from population.records import SpendRecord
from population.run_folder import RunFolder

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]  # one browser for all of them

DOCS = Path(__file__).parents[3] / "docs"
IMAGES = os.environ.get("EVO_IMAGES")
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def browser() -> Iterator["Chrome"]:
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    # Continuous integration runs as root, for whom chromium has no sandbox, and may have little shared memory.
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(str(shutil.which("chromedriver"))))
    driver.implicitly_wait(0)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    """The search that was run on an H200."""
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(DOCS / "results" / "h200-offline-search.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    [run] = [path.parent for path in folder.rglob("archive.sqlite")]
    return read_account(RunFolder(run), now=0.0)


@pytest.fixture
def page(browser: "Chrome", account: Account, tmp_path: Path) -> Iterator["Chrome"]:
    """The report of that run, opened as a file; its console must stay empty."""
    yield from opened(browser, account, tmp_path)


def opened(browser: "Chrome", account: Account, folder: Path) -> Iterator["Chrome"]:
    path = folder / "report.html"
    path.write_text(report_page(account).html, encoding="utf-8")
    browser.get("about:blank")  # so that an address within the page is no longer there
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def found(page: "Chrome", selector: str) -> Any:
    return page.find_element("css selector", selector)


def texts(page: "Chrome", selector: str) -> list[str]:
    return [each.text for each in page.find_elements("css selector", selector) if each.is_displayed()]


def wait(page: "Chrome", script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, PATIENCE_S, poll_frequency=0.05).until(lambda page: page.execute_script(f"return {script}"))


def shoot(page: "Chrome", name: str, *, top: str = "#main") -> None:
    if IMAGES is None:
        return
    page.execute_script("document.activeElement.blur(); document.querySelector(arguments[0]).scrollIntoView()", top)
    from PIL import Image

    with Image.open(io.BytesIO(page.get_screenshot_as_png())) as picture:
        picture.convert("RGB").quantize(128).save(Path(IMAGES) / f"{name}.png", optimize=True)


def test_the_champion_comes_first(page: "Chrome", account: Account) -> None:
    assert page.title == f"{account.row.name} · evo"
    assert texts(page, "h1") == [account.row.name]
    assert texts(page, "dl.tiles dd")[0] == "0.5991 ×"
    assert [each.split()[0] for each in texts(page, "article h3")] == [account.line[0].kernel]
    shoot(page, "report")


def test_the_line_is_walked_to_the_seed_and_back(page: "Chrome", account: Account) -> None:
    walked = []
    for _ in account.line:
        walked.append(texts(page, "article h3")[0].split()[0])
        if links := [e for e in page.find_elements("css selector", "a[rel=prev]") if e.is_displayed()]:
            links[0].click()
            wait(page, f"location.hash !== '#k-{walked[-1]}' && location.hash")
    assert walked == [step.kernel for step in account.line]
    assert texts(page, "blockquote") == []  # a seed was not asked for
    assert page.switch_to.active_element.text.split()[0] == walked[-1]
    page.back()
    wait(page, f"location.hash === '#k-{walked[-2]}'")
    step = account.line[-2]
    assert step.question is not None
    assert texts(page, "blockquote") == [step.question.text]


def test_arrows_walk_too(page: "Chrome", account: Account) -> None:
    second, third = account.line[1].kernel, account.line[2].kernel
    found(page, f".walk a[href='#k-{second}']").click()
    wait(page, f"document.activeElement.id === 'h-{second}'")
    page.switch_to.active_element.send_keys("\ue012")  # the left arrow
    wait(page, f"document.activeElement.id === 'h-{third}'")
    page.switch_to.active_element.send_keys("\ue014")
    wait(page, f"document.activeElement.id === 'h-{second}'")
    assert texts(page, "article h3")[0].split()[0] == second
    shoot(page, "lineage", top="#walk")


def test_a_point_of_a_picture_leads_to_its_kernel(page: "Chrome", account: Account) -> None:
    milestone = account.milestones[2]
    point = found(page, f"#way svg a[href='#k-{milestone.kernel}']")
    page.execute_script("arguments[0].focus()", point)
    page.switch_to.active_element.send_keys("\ue007")  # Enter
    wait(page, f"document.activeElement.id === 'h-{milestone.kernel}'")
    assert texts(page, "article h3")[0].split() == [milestone.kernel, f"{milestone.geomean:.4f}", "×"]


def test_questions_are_sorted_by_any_column(page: "Chrome", account: Account) -> None:
    [gain] = [e for e in page.find_elements("css selector", "#question-table button") if e.text == "mean gain"]
    gain.click()
    shown = [None if text == "–" else float(text) for text in texts(page, "#question-table tbody td:nth-child(9)")]
    gains = [row.statistics.mean_gain for row in account.questions]
    known = sorted((round(gain, 3) for gain in gains if gain is not None), reverse=True)
    assert shown == [*known, *([None] * (len(gains) - len(known)))]
    assert found(page, "#question-table th[aria-sort=descending]").text.startswith("mean gain")
    gain.click()
    assert texts(page, "#question-table tbody td:nth-child(9)")[-1] == f"{known[0]:.3f}"
    page.find_elements("css selector", "#question-table button")[0].click()
    words = [text.casefold() for text in texts(page, "#question-table tbody th")]
    assert words == sorted(words)


def test_themes_change_every_colour_and_are_remembered(page: "Chrome") -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    line = "return getComputedStyle(document.querySelector('#way svg a use')).fill"
    seen = {}
    for theme in ("dark", "light"):
        found(page, f".theme input[value={theme}]").find_element("xpath", "..").click()
        seen[theme] = (page.execute_script(background), page.execute_script(line))  # type: ignore[no-untyped-call]
        if theme == "dark":
            shoot(page, "scenarios", top="#map")
    assert seen == {
        "dark": ("rgb(20, 23, 28)", "rgb(116, 179, 255)"), "light": ("rgb(255, 255, 255)", "rgb(10, 98, 196)"),
    }  # fmt: skip
    page.refresh()
    assert page.execute_script("return document.documentElement.dataset.theme") == "light"  # type: ignore[no-untyped-call]
    found(page, ".theme input[value='']").find_element("xpath", "..").click()


def test_a_keyboard_reaches_the_content_first(page: "Chrome") -> None:
    found(page, "body").send_keys("\ue004")  # Tab
    assert page.switch_to.active_element.text == "Skip to the content"
    page.switch_to.active_element.send_keys("\ue007")
    wait(page, "document.activeElement.id === 'main'")


def test_hostile_words_are_shown_as_words(browser: "Chrome", account: Account, tmp_path: Path) -> None:
    for page in opened(browser, replace(hostile(account), line=hostile(account).line[:1], beside=()), tmp_path):
        assert page.execute_script("return document.querySelector('h1').textContent") == SHOWN  # type: ignore[no-untyped-call]
        assert page.execute_script("return document.querySelector('ins').textContent") == SHOWN  # type: ignore[no-untyped-call]
        assert page.execute_script("return document.images.length") == 0  # type: ignore[no-untyped-call]


def test_a_script_that_slipped_in_would_not_run(browser: "Chrome", account: Account, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    slipped = "<script>window.ran = true</script><img src=x onerror='window.ran = true'></main>"
    path.write_text(report_page(account).html.replace("</main>", slipped), encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.execute_script("return window.ran === undefined") is True  # type: ignore[no-untyped-call]
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))  # type: ignore[no-untyped-call]


def test_it_is_read_without_its_script(browser: "Chrome", account: Account, tmp_path: Path) -> None:
    """Whoever turns scripts off sees every step."""
    path = tmp_path / "report.html"
    html = report_page(account).html
    path.write_text(html.partition("<script>")[0] + "</body></html>", encoding="utf-8")
    browser.get(path.as_uri())
    assert len(texts(browser, "article h3")) == len(account.line) + len(account.beside)


def test_a_live_page_follows_its_run_and_keeps_its_readers_place(browser: "Chrome", tmp_path: Path) -> None:
    runs = {name: write_run(tmp_path, name, [0.5, 0.7, best]) for name, best in (("a", 0.6), ("b", 0.8))}
    with PageServer(Watch(runs, clock=lambda: 0.0), pytest.fail) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            follow(browser, server, runs["b"])
        finally:
            browser.get("about:blank")
            server.shutdown()
            thread.join()


def follow(page: "Chrome", server: PageServer, run: RunFolder) -> None:
    page.get(server.url)
    assert texts(page, "h1") == ["2 runs side by side"]
    page.find_elements("css selector", "tbody a")[1].click()
    wait(page, "document.querySelector('h1').textContent === 'b'")
    wait(page, "document.getElementById('pulse').textContent.startsWith('live')")
    page.find_elements("css selector", "#question-table button")[0].click()
    page.find_elements("css selector", "a.step")[-1].click()
    shown = texts(page, "article h3")
    with open_archive(run) as archive:
        archive.record_spend(SpendRecord(key="test", kind="cost_usd", amount=4.25))
        wait(page, "document.getElementById('spend').textContent.includes('4.2500')")
        assert texts(page, ".state") == ["running"]
    assert texts(page, "article h3") == shown
    assert found(page, "#question-table th[aria-sort=ascending]").text.startswith("question")
    assert page.get_log("browser") == []  # type: ignore[no-untyped-call]
