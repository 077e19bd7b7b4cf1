"""Drives the site in a browser: `browser.py SITE FOLDER PRECAST`. It serves the site on this machine, plans in the playground, compares
its plans with those of the command, hands it damaged files, checks every link of every page, prints times, and leaves screenshots in the folder. It needs
playwright and Chromium."""

import functools
import html.parser
import http.server
import json
import shutil
import statistics
import struct
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from playwright.sync_api import sync_playwright

SITE, FOLDER, PRECAST = [Path(word).resolve() for word in sys.argv[1:4]]
CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).resolve().parents[3]
OWN = "version: 1\nlevel: O2\ndtype: float16\nrules:\n  - {path: '0', run: float32, because: the first}\n"
ALLOWED = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def serve():
    """Serves the site, and returns its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def header(tensors):
    """The beginning of a safetensors file with these names and shapes, and the number of bytes that follow."""
    entries, at = {}, 0
    for name, shape in tensors:
        size = 4 * functools.reduce(lambda a, b: a * b, shape, 1)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text, at


def weights(tensors):
    """The bytes of a safetensors file of zeros."""
    start, rest = header(tensors)
    return start + bytes(rest)


def encoder(layers=45):
    """The tensors of an encoder, 12 for each layer: 540 for 45."""
    parts = ["attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "fc"]
    for layer in range(layers):
        for part in parts:
            yield from [(f"layers.{layer}.{part}.weight", [8, 8]), (f"layers.{layer}.{part}.bias", [8])]
        yield from [(f"layers.{layer}.norm.weight", [8]), (f"layers.{layer}.norm.bias", [8])]


# The time from a change of the text to a page that is laid out.
TYPED = """async text => {
    const box = document.querySelector("#a textarea"), begin = performance.now();
    const planned = new Promise(done => new MutationObserver(done).observe(document.getElementById("state"), { childList: true }));
    box.value = text;
    box.dispatchEvent(new Event("input"));
    await planned;
    document.body.offsetHeight;
    return performance.now() - begin;
}"""


class Links(html.parser.HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[key] for key in ("id", "name") if given.get(key))
        self.links += [given[key] for key in ("href", "src") if given.get(key)]


def check_links():
    """Checks that every link is to a file and an anchor of the site, or to another host that no page loads anything from."""
    pages = {path: Links(path.read_text()) for path in SITE.rglob("*.html") if path.name != "404.html"}
    count = 0
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(urljoin(path.as_uri(), link))
            if urlsplit(address).scheme != "file":
                continue
            to = Path(unquote(urlsplit(address).path))
            to = to / "index.html" if to.is_dir() else to
            assert to.is_file(), f"{path}: {link}"
            assert to not in pages or to.parent.name == "playground" or unquote(anchor) in pages[to].anchors, f"{path}: {link}"
            count += 1
    print(f"{len(pages)} pages, {count} links")


class Page:
    """An opened page, which asks no other host and has no error of its own."""

    def __init__(self, browser, address, width=1400, theme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.page, self.wrong = self.context.new_page(), []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.wrong.append(said.text))
        self.page.on("request", lambda asked: asked.url.startswith(("blob:", "data:", BASE)) or self.wrong.append(asked.url))
        self.page.goto(address)

    def __enter__(self):
        return self.page

    def __exit__(self, *failed):
        assert failed[0] or not self.wrong, self.wrong
        self.context.close()


def state(page, words, timeout=20_000):
    page.wait_for_function("words => document.getElementById('state').textContent.includes(words)", arg=words, timeout=timeout)


def write(page, policy, text):
    """Writes a policy into its box."""
    page.locator(f"#{policy} textarea").fill(text)


def give(page, *files, name=None):
    """Opens files, given as name and bytes, and waits until the page has taken or refused them."""
    page.evaluate("document.getElementById('unread').textContent = ''")
    page.set_input_files("#files", [{"name": name, "mimeType": "", "buffer": data} for name, data in files])
    own = "document.querySelector('#models [value=own]')?.textContent === name"
    page.wait_for_function(f"name => document.getElementById('unread').textContent || {own}", arg=name or files[0][0])
    return page.locator("#unread").inner_text()


def mistakes(page):
    """A mistake is shown at its line and column, and the last plan remains."""
    rows = page.locator(".row").count()
    write(page, "a", OWN.replace("float32", "flaot32"))
    state(page, "line 5, column")
    said = page.locator("#said-a").inner_text()
    assert said.startswith("A:5:") and "did you mean" in said, said
    assert page.locator("#a .wrong").inner_text().strip() == "5"
    assert page.locator("#a textarea").get_attribute("aria-invalid") == "true"
    assert page.locator(".row").count() == rows and page.locator("body.stale").count() == 1
    page.screenshot(path=FOLDER / "mistake.png")
    write(page, "a", OWN.replace("path: '0'", "path: 'no'"))
    state(page, "mistake in policy A, line 5")
    write(page, "a", OWN)
    state(page, "planned in")
    assert page.locator("#said-a").is_hidden() and page.locator(".stale").count() == 0
    assert "the first" in page.locator("#rules").inner_text() or page.locator("details.rules").count() == 1
    assert page.locator("#a select").input_value() == "own"


def agrees(page):
    """The data of each shipped model under each shipped policy are those of the page that the command writes."""
    options = lambda of: page.locator(f"{of} option").evaluate_all("all => all.map(one => one.value)")
    written, count = FOLDER / "plan.html", 0
    for model in options("#models"):
        page.select_option("#models", model)
        page.wait_for_function("model => data.model === `${model} (built in)`", arg=model)
        for policy in options("#a select"):
            if policy.startswith(("graph", "onnx", "own")):
                continue
            page.select_option("#a select", policy)
            page.wait_for_function("policy => data.plans[0].name === `${policy} (built in)`", arg=policy)
            subprocess.run([PRECAST, "plan", model, "--policy", policy, "--html", written, "--force"], check=True, capture_output=True)
            text = written.read_text().split('id="data">')[1].split("</script>")[0]
            assert page.evaluate("data") == json.loads(text), (model, policy)
            count += 1
    print(f"{count} plans are those of the command")
    page.select_option("#models", "lenet5_bn")


def compares(page):
    page.select_option("#b select", "o3")
    state(page, "planned in")
    page.wait_for_selector("body.two")
    assert page.locator("#stats").inner_text().count("differ") == 1 and page.locator(".mark").count() > 0
    page.check("#differ")
    page.uncheck("#differ")


def damaged(page):
    """Files that cannot be read are refused in words, and the network before remains."""
    model = page.locator("#model").inner_text()
    whole = weights(encoder(1))
    for name, data, words in [
        ("empty.safetensors", b"", "it has 0 bytes, and the length of the header takes 8"),
        ("short.safetensors", whole[:4], "it has 4 bytes"),
        ("cut.safetensors", whole[:300], "the header would have"),
        ("cut-data.safetensors", whole[:-10], "its tensors take"),
        ("text.safetensors", b"\x10\0\0\0\0\0\0\0not JSON at all.", "its header: "),
        ("huge.safetensors", b"\xff" * 8, "the header would have 18446744073709551615 bytes"),
        ("pickle.safetensors", b"PK\x03\x04" + bytes(600), "torch.save"),
        ("empty.onnx", b"", "an empty file, where an ONNX model is expected"),
        ("none.onnx", b"\xff\xfe" * 300, "not an ONNX model"),
        ("graphless.onnx", b"\x08\x07", "it has no graph"),
        ("slip.yaml", b"version: 1\nnet: {kind: Dens, in_features: 2}\n", "slip.yaml:2:"),
        ("empty.yaml", b"", "empty.yaml"),
        ("large.yaml", b"version: 1\nnet: {kind: Dense, in_features: 1000000, out_features: 1000000}\n", "large.yaml:2:"),
        ("heavy.yaml", b"version: 1\nnet: {kind: Dense, in_features: 32000, out_features: 32000}\n", "does not fit into memory"),
        ("notes.txt", b"a", "expected a name that ends in .safetensors, .onnx or .yaml"),
    ]:
        said = give(page, (name, data))
        assert words in said and name in said, (name, said)
        assert page.locator("#model").inner_text() == model
        assert page.locator("#models").input_value() == "lenet5_bn"
    page.screenshot(path=FOLDER / "damaged.png")
    write(page, "a", OWN + "#")
    state(page, "planned in")


def crash(page):
    """A library that stops, as for lack of memory, is loaded again with the same network and policy."""
    write(page, "a", OWN)
    page.evaluate("""async () => {
        const { Subject } = await import("./precast_playground.js?1");
        Subject.prototype.plan = () => { throw new WebAssembly.RuntimeError("unreachable") };
    }""")
    write(page, "a", OWN + "#")
    state(page, "a mistake in policy A")
    assert "the library stopped" in page.locator("#said-a").inner_text()
    write(page, "a", OWN)
    state(page, "planned in")
    assert page.locator("#said-a").is_hidden()


def networks(page):
    """Plans weights, several files of weights, an ONNX file and a model in YAML, as the command does."""
    page.select_option("#a select", "o2")
    assert give(page, ("encoder.safetensors", weights(encoder()))) == ""
    assert "540 tensors" in page.locator("#facts").inner_text()
    write(page, "a", OWN.replace("path: '0'", "path: layers.*.norm"))
    state(page, "planned in")
    text = page.locator("#a textarea").input_value()
    took = [page.evaluate(TYPED, text + "# a comment, written by hand"[:count]) for count in range(1, 29)]
    median = statistics.median(took)
    print(f"540 tensors: planned and laid out {median:.1f} ms after a key ({len(took)} keys, at most {max(took):.1f})")
    assert median < 50, took
    parts = list(encoder())
    # A file of 17 GB, of which only the header is read: it is longer than the memory of a page.
    start, rest = header([(f"layers.{layer}.fc.weight", [65536, 16384]) for layer in range(4)])
    with (FOLDER / "long.safetensors").open("wb") as file:
        file.write(start)
        file.truncate(len(start) + rest)
    page.select_option("#a select", "o2")
    page.set_input_files("#files", FOLDER / "long.safetensors")
    page.wait_for_function("() => document.getElementById('model').textContent === 'long.safetensors'")
    assert "4,294,967,296" in page.locator("#stats").inner_text(), page.locator("#stats").inner_text()
    (FOLDER / "long.safetensors").unlink()
    config = ("config.json", b'{"architectures": ["OwnEncoder"]}')
    assert give(page, ("1.safetensors", weights(parts[:270])), ("2.safetensors", weights(parts[270:])), config, name="2 files") == ""
    assert "540 tensors" in page.locator("#facts").inner_text() and "OwnEncoder" in page.locator("#r0").inner_text()
    page.select_option("#a select", "o2")
    state(page, "planned in")
    assert give(page, ("torch-vit.onnx", (ROOT / "docs/guide/torch-vit.onnx").read_bytes())) == ""
    page.select_option("#a select", "onnx")
    page.wait_for_selector("#b select")
    page.select_option("#b select", "onnx-bf16")
    state(page, "planned in")
    assert "nodes run low" in page.locator("#r0").inner_text()
    page.screenshot(path=FOLDER / "onnx.png")
    page.select_option("#b select", "o2")
    state(page, "a mistake in policy B")
    assert "do not compare" in page.locator("#said-b").inner_text()
    page.select_option("#a select", "o2")
    page.select_option("#b select", "none")
    state(page, "planned in")
    assert give(page, ("own.yaml", (ROOT / "models/lenet5.yaml").read_bytes())) == ""
    page.select_option("#models", "lenet5_bn")
    page.select_option("#a select", "graph")
    page.wait_for_selector("body.nodes")
    # The graph is that of evaluation, also after a plan of cells: statistics come before the weights of a norm.
    assert page.locator("#tree").inner_text().index("running_mean") < page.locator("#tree").inner_text().index("1.weight")


def links(browser, page):
    """Follows a link that holds a policy."""
    page.select_option("#models", "lenet5")
    write(page, "a", OWN + "# ü, in a link\n")
    page.wait_for_function("() => location.hash.includes('model=lenet5&a=~')")
    address = page.url
    with Page(browser, address) as other:
        state(other, "planned in")
        assert other.locator("#a textarea").input_value() == OWN + "# ü, in a link\n"
        assert other.locator("#model").inner_text() == "lenet5 (built in)"
        other.evaluate("location.hash = '#a=o1&b=o3'")
        other.wait_for_selector("body.two")
        assert other.locator("#b select").input_value() == "o3"
    for broken in ["#a=~%00", "#a=~AAAA", "#a=nothing&model=none", "#&&==", "#a=~" + "Q" * 5000]:
        with Page(browser, f"{BASE}/playground/index.html{broken}") as other:
            other.wait_for_function("() => !document.getElementById('state').textContent.startsWith('loading')")
            other.wait_for_selector(".row") if broken in ["#&&=="] else None
            other.select_option("#a select", "o1")
            state(other, "planned in")


def drop(page):
    """Drops a file on the page, as a mouse does."""
    page.select_option("#a select", "o2")
    data = list(weights(encoder(2)))
    page.evaluate("""data => {
        const given = new DataTransfer();
        given.items.add(new File([new Uint8Array(data)], "dropped.safetensors"));
        for (const name of ["dragover", "drop"]) {
            document.getElementById("source").dispatchEvent(new DragEvent(name, { dataTransfer: given, bubbles: true, cancelable: true }));
        }
    }""", data)
    page.wait_for_function("() => document.getElementById('model').textContent === 'dropped.safetensors'")
    assert "24 tensors" in page.locator("#facts").inner_text()
    assert "notes.txt" in give(page, ("notes.txt", b"a"))
    assert page.locator("#models option:checked").inner_text() == "dropped.safetensors"
    page.select_option("#models", "mlp")
    page.wait_for_function("() => document.getElementById('model').textContent.startsWith('mlp')")
    page.select_option("#models", "own")
    page.wait_for_function("() => document.getElementById('model').textContent === 'dropped.safetensors'")


def search(page):
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").fill("loss scale")
    page.wait_for_selector(".md-search-result__item a")
    page.screenshot(path=FOLDER / "search.png")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    check_links()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ALLOWED)
        playground = f"{BASE}/playground/index.html"
        with Page(browser, playground) as page:
            state(page, "planned in")
            agrees(page)
            mistakes(page)
            compares(page)
            damaged(page)
            drop(page)
            page.select_option("#b select", "none")
            page.select_option("#models", "lenet5")
            networks(page)
            links(browser, page)
        with Page(browser, playground) as page:
            state(page, "planned in")
            crash(page)
        with Page(browser, f"{BASE}/index.html") as page:
            search(page)
        for width in [400, 1400]:
            for theme in ["light", "dark"]:
                pages = {"playground": f"{playground}#a=o2&b=o3&model=lenet5_bn", "index": f"{BASE}/index.html", "guide": f"{BASE}/docs/guide/write-a-policy.html", "command": f"{BASE}/docs/guide/the-command.html"}
                for name, address in pages.items():
                    with Page(browser, address, width, theme) as page:
                        page.wait_for_selector("body.two" if name == "playground" else "article")
                        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                        assert wide <= 0, (name, width, wide)
                        page.screenshot(path=FOLDER / f"{name}-{width}-{theme}.png")
        browser.close()


BASE = serve()
main()
