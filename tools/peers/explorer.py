"""Drives the page of `precast plan --html` in a browser: `explorer.py PRECAST FOLDER [CHROMIUM]`. It checks what the page
answers against the command, prints times, and leaves screenshots in the folder. It needs playwright and Chromium."""

import json
import struct
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PRECAST, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
CHROMIUM = sys.argv[3] if len(sys.argv) > 3 else "/usr/bin/chromium"
HOSTILE = "</script><img src=x onerror=document.title='broken'>"


def precast(*args):
    """The standard output of the command."""
    done = subprocess.run([PRECAST, *args], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def page_of(name, model, *policies):
    """Writes a page, and returns the plan of its first policy."""
    given = [word for policy in policies for word in ("--policy", policy)]
    precast("plan", model, *given, "--html", f"{name}.html", "--force")
    return json.loads(precast("plan", model, "--policy", policies[0], "--format", "json"))["decisions"]


def write_models():
    """Writes a network of 5,011 cells, weights with a hostile name, and a policy with hostile reasons."""
    dense = "{kind: Dense, in_features: 16, out_features: 16}"
    norm = "{kind: LayerNorm, normalized_shape: [16]}"
    leaves = [norm, dense, "{kind: GELU}", dense, "{kind: Dropout, p: 0.1}", dense, "{kind: ReLU}", norm, dense, "{kind: Tanh}", "{kind: Softmax}"]
    sequential = lambda cells: "{kind: Sequential, cells: [" + ", ".join(cells) + "]}"
    block = sequential([sequential(leaves)] * 2)
    stages = sequential([sequential(["\n" + block] * 20)] * 10)
    (FOLDER / "large.yaml").write_text(f"version: 1\nname: large\ninput: [16]\nnet: {stages}\n")
    header = json.dumps({f"{HOSTILE}.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (FOLDER / "hostile.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(24))
    rule = {"path": "**", "run": "float32", "because": HOSTILE}
    (FOLDER / "hostile.yaml").write_text(json.dumps({"version": 1, "level": "O2", "dtype": "float16", "rules": [rule]}))


# The time from a change of the search to the next frame.
SEARCH = """async text => {
    const box = document.getElementById("search"), begin = performance.now();
    box.value = text;
    box.dispatchEvent(new Event("input"));
    document.body.offsetHeight;
    const answered = performance.now() - begin;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return [answered, performance.now() - begin];
}"""
OPENED = "performance.getEntriesByType('navigation')[0].domComplete"
FOCUSED = "Number(document.activeElement.closest('.row').id.slice(1))"


class Page:
    """An opened page, which must ask for nothing and break nothing."""

    def __init__(self, browser, name, width=1400, theme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.wrong, self.asked = [], []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto((FOLDER / f"{name}.html").as_uri())

    def __enter__(self):
        return self.page

    def __exit__(self, *failed):
        assert failed[0] or (not self.wrong and len(self.asked) == 1), (self.wrong, self.asked)
        self.page.close()


def count(page):
    return page.locator("#count").inner_text().split(" ")[0].replace(",", "")


def answers(page, decisions):
    """Searches and filters, and compares the numbers of cells with the plan."""
    layer_norms = sum(cell["kind"] == "LayerNorm" for cell in decisions)
    for text, cells in [("layernorm", layer_norms), ("LAYERNORM 3.1.", None), ("s", None), ("no such cell", 0), ("", len(decisions))]:
        answered, drawn = page.evaluate(SEARCH, text)
        print(f"  search {text!r:18} {answered:6.1f} ms, {drawn:6.1f} ms with the next frame, {count(page)} cells")
        assert cells is None or count(page) == str(cells), (text, count(page))
    wide = sum(cell["run"] == {"fixed": "float32"} for cell in decisions)
    page.locator("#legend button", has_text="f32").click()
    assert count(page) == str(wide), count(page)
    page.locator("#legend button", has_text="f32").click()
    page.select_option("#colour", "3")
    assert page.locator("#legend button").count() == 2
    page.check("#casts")
    assert int(count(page)) >= sum(cell["adapter"] is not None for cell in decisions)
    page.uncheck("#casts")


def keys(page, decisions):
    """Walks through the tree by keyboard."""
    press = page.keyboard.press
    page.select_option("#level", "1")
    page.evaluate("document.activeElement.blur()")
    press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    press("ArrowDown")
    assert page.evaluate(FOCUSED) == 0
    press("ArrowDown")
    assert page.evaluate(FOCUSED) == 1
    row = page.locator("#r1")
    assert row.get_attribute("aria-expanded") == "false" and row.get_attribute("aria-level") == "2"
    press("ArrowRight")
    assert row.get_attribute("aria-expanded") == "true" and page.locator("#r2").is_visible()
    press("ArrowRight")
    assert page.evaluate(FOCUSED) == 2
    press("ArrowLeft")
    assert page.evaluate(FOCUSED) == 1
    press("*")
    press("ArrowLeft")
    assert row.get_attribute("aria-expanded") == "false" and page.locator("#r2").count() == 0
    press("End")
    last = page.evaluate(FOCUSED)
    assert last > 4000, last
    press("Enter")
    shown = page.locator(f"#r{last} .more").inner_text()
    explained = precast("explain", "large.yaml", decisions[last]["path"], "--policy", "o2").splitlines()
    for line in explained[3:]:
        assert line.split(maxsplit=1)[1] in shown, (line, shown)
    press("Enter")
    assert page.locator(".more").count() == 0
    press("Home")
    assert page.evaluate(FOCUSED) == 0
    press("Tab")
    assert page.evaluate("document.activeElement.className") == "cast" and page.locator("#tip").is_visible()


def printed(page):
    """The rows that print: all that are unfolded."""
    page.select_option("#level", page.locator("#level option").last.get_attribute("value"))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".row").count() == 5011


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_models()
    large = page_of("large", "large.yaml", "o2")
    page_of("large-two", "large.yaml", "o2", "o1")
    page_of("lenet5_bn", "lenet5_bn", "o2")
    page_of("two", "lenet5_bn", "o2", "o3")
    page_of("hostile", "hostile.safetensors", "hostile.yaml")
    for name in ["large", "large-two"]:
        print(f"{name}: {len(large)} cells, {(FOLDER / f'{name}.html').stat().st_size} bytes")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in ["large", "large-two"]:
            with Page(browser, name) as page:
                print(f"{name}: opened in {page.evaluate(OPENED):.0f} ms")
                print(f"{name}: unfolded in", page.evaluate("""async () => {
                    const begin = performance.now(), level = document.getElementById("level");
                    level.value = level.lastChild.value;
                    level.dispatchEvent(new Event("change"));
                    document.body.offsetHeight;
                    return Math.round(performance.now() - begin);
                }"""), "ms")
        with Page(browser, "large") as page:
            answers(page, large)
            keys(page, large)
            printed(page)
        with Page(browser, "two") as page:
            page.check("#differ")
            changes = json.loads(precast("diff", "lenet5_bn", "-p", "o2", "-p", "o3", "--format", "json"))["changes"]
            assert count(page) == str(len(changes)) and len(changes) > 0
            page.uncheck("#differ")
            page.locator("#r0 .cast").first.hover()
            assert "4,096 B" in page.locator("#tip").inner_text()
        with Page(browser, "hostile") as page:
            assert page.locator("img").count() == 0 and "broken" not in page.title()
            assert HOSTILE.split(" ")[0] in page.locator("#tree").inner_text()
        for name in ["lenet5_bn", "two", "large", "large-two", "hostile"]:
            for width in [400, 1000, 1400]:
                for theme in ["light", "dark"]:
                    with Page(browser, name, width, theme) as page:
                        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                        assert wide <= 0, (name, width, wide)
                        page.screenshot(path=FOLDER / f"{name}-{width}-{theme}.png")
                        page.locator(".row .cell").last.click() if name != "large" else page.evaluate(SEARCH, "dense 7.1")
                        page.locator("details.rules summary").first.click() if page.locator("details.rules").count() else None
                        height = page.evaluate("document.documentElement.scrollHeight") if "large" not in name else 900
                        page.set_viewport_size({"width": width, "height": height})
                        page.screenshot(path=FOLDER / f"{name}-{width}-{theme}-open.png")
        browser.close()


main()
