"""Programs whose pages the tests look at, and helpers that open a page in headless Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import minidynamo

from .models import transformer

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()


def five_lines(x, w):
    h = torch.relu(x @ w)
    h = h.sum(-1, keepdim=True)
    y = torch.softmax(x * h, -1)
    return y


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = torch.nn.Linear(16, 64), torch.nn.LayerNorm(64)
        self.down = torch.nn.Linear(64, 4)

    def forward(self, x):
        h = self.up(x)
        h = F.gelu(self.norm(h))
        return self.down(h)


def innermost(x):
    y = x.sin()
    print("a helper of a helper")
    return y.cos()


def helper(x):
    return innermost(x) * 2


def breaking(x):
    print("first")
    x = helper(x)
    for _ in range(2):
        x = torch.relu(x) + 1
        minidynamo.graph_break()
    return x.exp()


def explain_five_lines():
    torch.manual_seed(0)
    with torch.no_grad():
        return minidynamo.explain(five_lines)(torch.randn(8, 8), torch.randn(8, 8))


def explain_triton():
    """The kernels are Triton's, which its interpreter runs."""
    import miniinductor

    torch.manual_seed(0)
    with torch.no_grad(), miniinductor.config.patch(cpu_backend="triton"):
        return minidynamo.explain(five_lines)(torch.randn(8, 8), torch.randn(8, 8))


def explain_mlp_training():
    torch.manual_seed(0)
    e = minidynamo.explain(MLP())(torch.randn(32, 16))
    F.cross_entropy(e.result, torch.randint(0, 4, (32,))).backward()
    return e


def explain_breaks():
    """Three kinds of breaks, one of them in a helper of a helper, a loop, and a recompilation."""
    with torch.no_grad():
        return minidynamo.explain(breaking).calls([(torch.randn(8, 8),), (torch.randn(5, 8),)])


def gpt2(layers: int) -> tuple[Any, torch.Tensor]:
    sizes = dict(n_embd=64, n_head=4, vocab_size=512, n_positions=64, use_cache=False)
    model = transformer("GPT2LMHeadModel", "GPT2Config", n_layer=layers, **sizes)
    return model, torch.randint(0, 512, (2, 32))


def explain_gpt2(layers: int):
    model, ids = gpt2(layers)
    with torch.no_grad():
        return minidynamo.explain(model.eval())(ids)


def explain_gpt2_training(layers: int):
    model, ids = gpt2(layers)
    e = minidynamo.explain(model.train())(ids, labels=ids)
    e.result.loss.backward()
    return e


CLICK_THROUGH = """() => {
    const click = (each) => each.getClientRects().length && !each.disabled
        && each.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    for (const list of document.querySelectorAll('select')) {
        for (const { value } of [...list.options].slice(0, 5)) {
            list.value = value;
            list.dispatchEvent(new Event('change'));
        }
    }
    for (const pane of document.querySelectorAll('section.pane')) {
        const found = [...pane.querySelectorAll('.row, .box, .area, .ribbon, .block')];
        for (let at = 0; at < found.length; at += 1 + (found.length >> 3)) click(found[at]);
        for (const button of pane.querySelectorAll('.body button, .tools button')) click(button);
    }
}"""


# --- the browser ----------------------------------------------------------------------------------
@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


class Opened:
    """A page in a browser: `said` is what went wrong while it was looked at."""

    def __init__(self, chromium: Any, path: Path, width: int = 1280, theme: str = "light") -> None:
        self.page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.said: list[str] = []
        self.page.on("console", lambda m: m.type == "error" and self.said.append(m.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.asked: list[str] = []
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=20_000, state="attached")

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def open_all(self) -> None:
        """Open the panes that are closed at first."""
        self.ask("document.querySelectorAll('.fold[aria-expanded=false]').forEach(b => b.click())")

    def picture(self, name: str) -> None:
        """A screenshot, in the folder that MINI_PICTURES names."""
        if folder := os.environ.get("MINI_PICTURES"):
            self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    def click_through(self) -> list[str]:
        """Open every pane, choose what it offers, press its buttons; what went wrong."""
        self.open_all()
        self.ask(CLICK_THROUGH)
        self.page.wait_for_timeout(50)
        return self.said

    def seen(self, pane: str) -> list[str]:
        """The texts of the rows of a pane that are in the document."""
        return self.page.locator(f"#{pane}-rows .row").all_text_contents()

    def kinds(self) -> list[str]:
        """The classes of the boxes of the graph that is shown."""
        return self.ask(
            "[...document.querySelectorAll('#pane-stages .box')].map(b => b.className.baseVal)"
        )

    def lit(self, pane: str) -> list[str]:
        """The texts of the lit rows of a pane that are in the document."""
        return self.page.locator(f"#{pane}-rows .row.lit").all_text_contents()
