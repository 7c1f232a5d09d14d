"""Look at the built pages as a reader's browser would.

usage: python notebooks/check_site.py [FOLDER] [--browser] [--pictures FOLDER]

Links (always; `build.py` runs this part): every link and picture of every page leads to a file of
the site, every #anchor exists there, no page loads anything from another place.  With --browser, in
headless Chromium (pip install playwright, a `chromium` on PATH): each page loads without a console
error or a request to elsewhere, its pictures have a size, nothing is wider than the window at 1280
and 390 pixels, and the search finds a word; --pictures keeps screenshots.
"""

import argparse
import html.parser
import shutil
import sys
import urllib.parse
from pathlib import Path

WIDTHS = (1280, 390)
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
        self.links, self.loaded, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(
            (found.get("rel") or "").split()
        ):
            self.loaded.append(found["href"])
        if found.get(self.loads.get(tag)):
            self.loaded.append(found[self.loads[tag]])


def broken_links(folder):
    """["page: link: why"] of a built site."""
    folder = Path(folder).resolve()
    pages = {
        path: Page(path.read_text())
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.parts
    }
    wrong = []
    for path, page in pages.items():
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


def problems_in_browser(folder, pictures=None):
    """["page: problem"], and {page: number of pictures}; every page at both widths."""
    from playwright.sync_api import sync_playwright

    folder, wrong, counts = Path(folder).resolve(), [], {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium")
            or shutil.which("chromium-browser")
            or shutil.which("google-chrome"),
            args=FLAGS,
        )
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            said = []
            page.on(
                "console",
                lambda message: message.type == "error" and said.append(f"console: {message.text}"),
            )
            page.on("pageerror", lambda error: said.append(f"script: {error}"))
            page.on(
                "request",
                lambda request: (
                    request.url.startswith(("file:", "data:"))
                    or said.append(f"asks for {request.url}")
                ),
            )
            for path in sorted(folder.glob("*.html")):
                said.clear()
                page.goto(path.as_uri(), wait_until="load")
                seen = page.evaluate(MEASURE)
                counts[path.stem] = seen["pictures"]
                said += [f"no picture at {source}" for source in seen["empty"]]
                if seen["width"] > width:
                    said.append(f"{seen['width']} wide: {', '.join(seen['wide'])}")
                wrong += [f"{path.name} at {width}: {text}" for text in said]
                if pictures:
                    page.screenshot(
                        path=str(Path(pictures) / f"{path.stem}-{width}.png"), full_page=True
                    )
        page.goto((folder / "search.html").as_uri() + "?q=guard", wait_until="load")
        page.wait_for_timeout(1500)
        if not page.query_selector_all("#search-results li"):
            wrong.append("search.html: nothing was found for 'guard'")
        browser.close()
    return wrong, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", nargs="?", default=str(Path(__file__).resolve().parent.parent / "course")
    )
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--pictures", default=None)
    options = parser.parse_args()
    wrong = broken_links(options.folder)
    if options.browser:
        if options.pictures:
            Path(options.pictures).mkdir(parents=True, exist_ok=True)
        seen, counts = problems_in_browser(options.folder, options.pictures)
        wrong += seen
        print(
            "pictures:", ", ".join(f"{name} {number}" for name, number in counts.items() if number)
        )
    print("\n".join(wrong) or "no broken link, nothing else to complain about")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
