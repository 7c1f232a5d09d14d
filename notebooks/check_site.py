"""Look at the built pages as a reader's browser would.

usage: python notebooks/check_site.py [FOLDER] [--browser] [--pictures FOLDER] [--only NAME]

Links (always; `build.py` runs this part): every link and picture of every page leads to a file of
the site, every #anchor exists there, no page loads anything from another place, every picture has a
text. With --browser, in headless Chromium (pip install playwright, a `chromium` on PATH), at 1280
and 390 pixels, light and dark: each page loads without a console error or a request to elsewhere,
its pictures have a size and their own proportions, nothing is wider than the window, nothing but
code and pictures scrolls sideways, each stepper moves by button and by key, code is large enough, a
folded output unfolds, axe-core (pip install axe-core-python) finds nothing serious, and the search
finds a word. At 1280 also: nothing is wider than its column, a chapter is at most TALLEST pixels
high, the contents mark the section at the top of the window, and the first block of code can be
copied. --pictures keeps screenshots, --only NAME looks at the pages of that name alone.
"""

import argparse
import contextlib
import functools
import html.parser
import http.server
import itertools
import shutil
import sys
import threading
import urllib.parse
from pathlib import Path

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
TALLEST, SMALLEST_CODE = 9000, 14
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Page(html.parser.HTMLParser):
    """The links, the loaded files and the anchors of one page."""

    loads = {"img": "src", "script": "src", "iframe": "src", "source": "src"}

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors, self.without_text = [], [], {""}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img" and not has_text(found):
            self.without_text.append(found.get("src", "?")[:80])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(
            (found.get("rel") or "").split()
        ):
            self.loaded.append(found["href"])
        if found.get(self.loads.get(tag)):
            self.loaded.append(found[self.loads[tag]])


def has_text(attributes):
    """A picture says what it shows: in words, not with the name of its file."""
    words = attributes.get("alt") or ""
    return len(words.split()) >= 3 or attributes.get("role") == "presentation"


def built_pages(folder):
    """Pages of the course, {path: Page}; an explorer is a document with tests of its own."""
    apart = {"_static", "explorer"}
    return {
        path: Page(path.read_text())
        for path in sorted(folder.rglob("*.html"))
        if not apart & set(path.relative_to(folder).parts)
    }


def broken_links(folder):
    """["page: link: why"] of a built site."""
    folder = Path(folder).resolve()
    pages, wrong = built_pages(folder), []
    for path, page in pages.items():
        wrong += [
            f"{path.relative_to(folder)}: {source}: a picture without a text"
            for source in page.without_text
        ]
        for link in [*page.links, *page.loaded]:
            parts, name = urllib.parse.urlsplit(link), path.relative_to(folder)
            if parts.scheme in ("http", "https") or link.startswith("//"):
                if link in page.loaded:
                    wrong.append(f"{name}: {link}: loaded from another place")
                continue
            if parts.scheme:  # data:, mailto:, javascript:
                continue
            target = (
                (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            )
            if not target.is_file():
                wrong.append(f"{name}: {link}: there is no such file")
            elif (
                target in pages
                and urllib.parse.unquote(parts.fragment) not in pages[target].anchors
            ):
                wrong.append(f"{name}: {link}: there is no such anchor")
    return wrong


MEASURE = """() => {
    const wide = [...document.querySelectorAll('body *')].filter(e => {
        const r = e.getBoundingClientRect();
        const end = window.innerWidth + 1;
        if (!(r.width > 0 && r.right > end && r.left < window.innerWidth)) return false;
        for (let p = e.parentElement; p; p = p.parentElement) {  // in something that scrolls itself
            const style = getComputedStyle(p), right = p.getBoundingClientRect().right;
            const scrolls = ['auto', 'scroll', 'hidden'].includes(style.overflowX);
            if (scrolls && right <= end) return false;
            if (style.position === 'fixed' || style.visibility === 'hidden') return false;
        }
        return true;
    });
    return {width: document.scrollingElement.scrollWidth,
            wide: wide.slice(0, 3).map(e => e.tagName + '.' + e.className),
            empty: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
            pictures: document.querySelectorAll('.cell_output img, .cell_output svg').length};
}"""


# sizes of the headings of a page, the highest level first
HEADINGS = """() => ['h1', 'h2', 'h3', 'h4'].map(level =>
    document.querySelector('.bd-article ' + level)).filter(e => e).map(e =>
    parseFloat(getComputedStyle(e).fontSize))"""

# what scrolls sideways and is neither code nor a picture
SIDEWAYS = """() => [...document.querySelectorAll('.bd-article *')].filter(e => {
    const style = getComputedStyle(e);
    if (!['auto', 'scroll'].includes(style.overflowX)) return false;
    if (e.scrollWidth <= e.clientWidth + 1) return false;
    if (e.closest('pre, .highlight, .mini-code, .picture, .stepper, details')) return false;
    return !e.querySelector('pre, img, svg, .mini-code');
}).map(e => e.tagName + '.' + e.className)"""

STEPS = """figure => {
    const shown = () => [...figure.querySelectorAll('.st-panels')].findIndex(e => !e.hidden);
    const [back, on] = figure.querySelectorAll('button'), places = [shown()];
    on.click(); places.push(shown());
    back.click(); places.push(shown());
    for (const key of ['ArrowRight', 'End', 'Home']) {
        on.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); places.push(shown());
    }
    const isWide = figure.scrollWidth > figure.clientWidth + 1;
    return [places, figure.querySelectorAll('.st-panels').length, isWide];
}"""


def stepper_problems(page):
    """Each stepper of an open page: buttons and keys show the step that they should."""
    found = []
    for figure in page.query_selector_all("figure.stepper"):
        places, count, is_wide = figure.evaluate(STEPS)
        if places != [0, 1, 0, 1, count - 1, 0]:
            found.append(f"a stepper of {count} steps went through {places}")
        if is_wide:
            found.append("a stepper is wider than its place")
    return found


# on every page: code that is too small
SMALL_CODE = """least => [...document.querySelectorAll('.bd-article pre')].flatMap(
    pre => [pre, ...pre.querySelectorAll('*')]).filter(
    e => e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < least).length"""

# on every page: pictures that are not shown in their own proportions
SQUASHED = """() => [...document.querySelectorAll('.bd-article img')].filter(e => {
    const look = getComputedStyle(e), own = e.naturalWidth / e.naturalHeight;
    const sides = (...names) => names.reduce((sum, name) => sum + parseFloat(look[name]), 0);
    const wide = e.clientWidth - sides('paddingLeft', 'paddingRight');
    const high = e.clientHeight - sides('paddingTop', 'paddingBottom');
    return high > 0 && e.naturalHeight && Math.abs(wide / high / own - 1) > 0.05;
}).map(e => e.alt)"""

# at 1280 pixels: what is wider than its column, scrolled or not
WIDER = """() => [...document.querySelectorAll('.bd-article *')].filter(e => {
    const style = getComputedStyle(e);
    if (style.overflowX === 'visible' || !e.clientWidth) return false;
    if (e.closest('svg') || style.clipPath !== 'none') return false;
    return e.scrollWidth > e.clientWidth + 1;
}).map(e => e.tagName + '.' + e.className)"""

# the contents, while one reads: [heading at the top, what is marked] where these differ
FOLLOWS = """async () => {
    const wrong = [], rest = () => new Promise(go => setTimeout(go, 180));
    for (const link of document.querySelectorAll('nav.page-toc a.nav-link')) {
        const place = document.getElementById(decodeURIComponent(link.hash.slice(1)));
        const heading = place.querySelector('h2, h3') || place;
        if (!heading.getClientRects().length) continue;
        heading.scrollIntoView({behavior: 'instant'});
        await rest();
        const at = heading.getBoundingClientRect().top;
        if (at > innerHeight / 5) continue;  // the end of the page
        const marked = [...document.querySelectorAll('nav.page-toc a[aria-current]')];
        const isEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
        if (marked.length !== 1 || (marked[0] !== link && !isEnd))
            wrong.push([link.textContent, marked.map(e => e.textContent).join()]);
    }
    scrollTo(0, 0);
    return wrong;
}"""

COPIES = """async () => {
    const button = document.querySelector('button.copy');
    if (!button) return null;
    button.click();
    await new Promise(go => setTimeout(go, 50));
    const code = button.parentElement.querySelector('pre').textContent;
    return (await navigator.clipboard.readText()).trimEnd() === code.trimEnd();
}"""

UNFOLDS = """() => {
    const button = document.querySelector('button.unfold');
    if (!button) return true;
    const part = button.previousElementSibling, before = part.clientHeight;
    button.click();
    const after = part.clientHeight;
    button.click();
    return !before || (after > before && part.clientHeight === before);
}"""


def reading_problems(page, width, is_chapter):
    """What disturbs a reader of an open page: size of code, length, width, contents."""
    found = []
    if small := page.evaluate(SMALL_CODE, SMALLEST_CODE):
        found.append(f"{small} pieces of code are smaller than {SMALLEST_CODE} pixels")
    found += [f"a squashed picture: {words[:60]}" for words in page.evaluate(SQUASHED)]
    if not page.evaluate(UNFOLDS):
        found.append("a folded output does not unfold")
    if width < WIDTHS[0]:
        return found
    found += [f"wider than its column: {what}" for what in page.evaluate(WIDER)[:5]]
    height = page.evaluate("document.documentElement.scrollHeight")
    if is_chapter and height > TALLEST:
        found.append(f"{height} pixels high")
    if page.evaluate(COPIES) is False:
        found.append("the button does not copy the code")
    found += [f"at {here!r} the contents mark {mark!r}" for here, mark in page.evaluate(FOLLOWS)]
    return found


def axe():
    """axe-core, if it is installed, or None."""
    try:
        from axe_core_python.sync_playwright import Axe
    except ImportError:
        return None
    return Axe()


# A page has thousands of coloured words of code, in a few styles.  Of each style three are enough;
# the others become plain text of what they stand in.
FEWER_WORDS = """() => {
    const styles = [...document.querySelectorAll('pre span:not(:has(*))')].map(word => {
        const own = getComputedStyle(word), around = getComputedStyle(word.parentElement);
        const block = getComputedStyle(word.closest('pre'));
        return [word, [own.color, own.backgroundColor, own.fontWeight, own.fontSize,
                       around.backgroundColor, block.backgroundColor].join(' ')];
    });
    const seen = new Map();
    for (const [word, style] of styles) {
        seen.set(style, (seen.get(style) || 0) + 1);
        if (seen.get(style) > 3) word.replaceWith(word.textContent);
    }
}"""


def serious(checker, page):
    """What axe-core calls serious or critical, with the first place of each."""
    if checker is None:
        return []
    page.evaluate(FEWER_WORDS)
    return [
        f"axe: {each['id']} ({len(each['nodes'])} places, such as {each['nodes'][0]['target']})"
        for each in checker.run(page, options={"resultTypes": ["violations"]})["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def problems_in_browser(folder, pictures=None, only=""):
    """["page: problem"], and {page: number of pictures}; every page at both widths, in both
    themes."""
    from playwright.sync_api import sync_playwright

    folder, wrong, counts, checker = Path(folder).resolve(), [], {}, axe()
    names = f"*{only}*.html" if only else "*.html"  # Python 3.11 refuses "**.html"
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium")
            or shutil.which("chromium-browser")
            or shutil.which("google-chrome"),
            args=FLAGS,
        )
        for width, scheme in itertools.product(WIDTHS, SCHEMES):
            page = browser.new_page(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                permissions=["clipboard-read", "clipboard-write"],
            )
            said = listen(page, address)
            for path in sorted([*folder.glob(names), *folder.glob(f"api/{names}")]):
                said.clear()
                page.goto(f"{address}/{path.relative_to(folder)}", wait_until="load")
                seen = page.evaluate(MEASURE)
                counts[path.stem] = seen["pictures"]
                said += [f"no picture at {source}" for source in seen["empty"]]
                if seen["width"] > width:
                    said.append(f"{seen['width']} wide: {', '.join(seen['wide'])}")
                sizes = page.evaluate(HEADINGS)
                if sizes != sorted(sizes, reverse=True):
                    said.append(f"a heading is larger than the one above it: {sizes}")
                said += [f"scrolls sideways: {what}" for what in page.evaluate(SIDEWAYS)]
                said += stepper_problems(page)
                said += reading_problems(page, width, path.name[:2].isdigit())
                said += serious(checker, page)
                found = [f"{path.name} at {width}, {scheme}: {text}" for text in said]
                print(
                    "\n".join([*found, f"looked at {path.name} at {width}, {scheme}"]), flush=True
                )
                wrong += found
                if pictures:
                    file = Path(pictures) / f"{path.stem}-{width}-{scheme}.png"
                    page.screenshot(path=str(file), full_page=True)
        page.goto(f"{address}/search.html?q=guard", wait_until="load")
        page.wait_for_timeout(1500)
        if not page.query_selector_all("#search-results li"):
            wrong.append("search.html: nothing was found for 'guard'")
        browser.close()
    if checker is None:
        print("axe-core-python is not installed: nothing was asked of it")
    return wrong, counts


@contextlib.contextmanager
def served(folder):
    """The address of a server of the folder, on this machine only: axe-core refuses files."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        """A file of the site; the icon that every browser asks for is no missing file."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *args):
        """Nothing."""


def listen(page, address):
    """A list that the errors and requests of a page are added to."""
    said = []
    page.on(
        "console",
        lambda message: message.type == "error" and said.append(f"console: {message.text}"),
    )
    page.on("pageerror", lambda error: said.append(f"script: {error}"))
    page.on(
        "request",
        lambda request: (
            request.url.startswith((address, "data:")) or said.append(f"asks for {request.url}")
        ),
    )
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", nargs="?", default=str(Path(__file__).resolve().parent.parent / "course")
    )
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--pictures", default=None)
    parser.add_argument("--only", default="", help="pages with this in their name")
    options = parser.parse_args()
    wrong = broken_links(options.folder)
    if options.browser:
        if options.pictures:
            Path(options.pictures).mkdir(parents=True, exist_ok=True)
        seen, counts = problems_in_browser(options.folder, options.pictures, options.only)
        wrong += seen
        print(
            "pictures:", ", ".join(f"{name} {number}" for name, number in counts.items() if number)
        )
    print("\n".join(wrong) or "no broken link, nothing else to complain about")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
