"""The colours and typefaces of notebooks, steppers, drawings and the explorer, light and dark.

In:   the class of the box around a drawing.  Out: a `<style>`; for the explorer's page the
      variables that style.css uses.

    >>> picture_style()[:7]
    '<style>'
    >>> page_variables()[:25]
    ':root{color-scheme:light;'

A drawing is written in light colours, so that a file of it can be printed.  In a notebook or on a
page a style sheet puts the colour of the reader's theme in place of each: selectors look for the
light one.  A drawing that uses a colour which is not in PALETTE fails a test.
"""

from .views import DARK, LIGHT, THEMES

TEXT_FACE = "Helvetica, Arial, sans-serif"  # Graphviz knows how wide its letters are
CODE_FACE = "DejaVu Sans Mono, Menlo, Consolas, monospace"
LOOKS = {  # (light, dark) of ink, of faint ink, of lines, of the paper, and of what is marked
    "ink": ("#1f1f1f", "#e8e8e8"),
    "faint": ("#5f6368", "#b3b8bf"),
    "line": ("#8a8f98", "#7d838c"),
    "paper": ("#ffffff", "#1b1d20"),
    "now": ("#cfe0ff", "#234a86"),
    "good": ("#cdebd2", "#1f5a31"),
    "bad": ("#f9d3cf", "#7a2a25"),
    "part": ("#e4e8ef", "#33383f"),
    "warm": ("#ffe3ad", "#6b4a10"),
}
INK = LOOKS["ink"]  # of what has no colour of its own: text
PAPER = ("#ffffff", "#1e1e1e")
PALETTE = {  # light -> dark
    "#ffffff": PAPER[1],
    "#fafafa": "#26282c",
    "#f3f3f3": "#2c2f34",
    "#e8f0fe": "#1c3a66",
    "#e1e7f3": "#2b3a55",
    "#d5dcea": "#34435e",
    "#e6f4ea": "#1e4a2d",
    "#fff8e1": "#4a4020",
    "#feefc3": "#5c4a10",
    "#fce8e6": "#5c2622",
    "#000000": "#e8e8e8",
    "#333333": "#c4c8ce",
    "#44546e": "#a9bbd8",
    "#555555": "#a8adb3",
    "#666666": "#a8adb3",
    "#888888": "#9aa0a8",
}
NAMES = {"#000000": ("black", "#000"), "#333333": ("#333",), "#666666": ("#666",),
         "#ffffff": ("white", "#fff")}  # fmt: skip

CODE = {
    part: (THEMES["light"][part], THEMES["dark"][part])
    for part in ("comment", "keyword", "string", "number", "name")
}
PAGE = {  # what the explorer's style sheet calls them
    "paper": LOOKS["paper"],
    "text": LOOKS["ink"],
    "quiet": LOOKS["faint"],
    "line": LOOKS["part"],
    "edge": LOOKS["line"],
    "bar": ("#f3f3f3", PALETTE["#f3f3f3"]),
    "lit": ("#fff8e1", PALETTE["#fff8e1"]),
    "chosen": LOOKS["warm"],
    "added": ("#e6f4ea", PALETTE["#e6f4ea"]),
    "removed": ("#fce8e6", PALETTE["#fce8e6"]),
    "input": ("#e8f0fe", PALETTE["#e8f0fe"]),
    "group": ("#e1e7f3", PALETTE["#e1e7f3"]),
    "saved": ("#feefc3", PALETTE["#feefc3"]),
    "area": LOOKS["now"],
    "accent": CODE["name"],
    "good": CODE["string"],
    "bad": ("#a8201a", "#ff9d94"),
    **{name: CODE[name] for name in ("comment", "keyword", "string", "number")},
    # source lines in the picture of the pipeline, those that have no colour of their own last
    "lane0": ("#4a7fc1", "#6ea0dd"),
    "lane1": ("#b87d10", "#d9a53f"),
    "lane2": ("#3f8f4f", "#63b573"),
    "lane3": ("#bf5583", "#d97ca4"),
    "lane4": ("#8360b8", "#a98add"),
    "lane5": ("#2a8f8f", "#54b3b3"),
    "lane6": ("#a0653a", "#c98d60"),
    "lane7": ("#868f9a", "#868f9a"),
}


def page_variables() -> str:
    """The explorer's colours and typefaces, of the system's theme or the one that is chosen."""
    light, dark = (
        "".join(f"--{name}:{pair[theme]};" for name, pair in PAGE.items()) for theme in (0, 1)
    )
    faces = f"--text-face:{TEXT_FACE};--code-face:{CODE_FACE};"
    rules = {":root": f"color-scheme:light;{faces}{light}"}
    rules[':root[data-theme="dark"]'] = of_dark = f"color-scheme:dark;{dark}"
    chosen = "".join(f"{where}{{{values}}}" for where, values in rules.items())
    return (
        f'{chosen}@media(prefers-color-scheme:dark){{:root:not([data-theme="light"]){{{of_dark}}}}}'
    )


def variables(dark: bool) -> str:
    """The colours of a theme as CSS variables."""
    colours = [PALETTE[light] if dark else light for light in PALETTE]
    values = "".join(f"--draw-{n}:{colour};" for n, colour in enumerate(colours))
    return f"{values}--draw-ink:{INK[dark]};--draw-paper:{PAPER[dark]};"


def picture_style(box: str = ".picture") -> str:
    """Rules for the drawings in `box`: they follow the reader's theme."""
    rules = [
        f"{box}{{{variables(dark=False)}}}",
        f"@media(prefers-color-scheme:dark){{{box}{{{variables(dark=True)}}}}}",
        f"{DARK.format(box)}{{{variables(dark=True)}}}",
        f"{LIGHT.format(box)}{{{variables(dark=False)}}}",
        f"@media print{{{box}{{{variables(dark=False)}}}}}",
        f"{box} svg{{background:var(--draw-paper)!important}}",
        f"{box} svg text{{fill:var(--draw-ink)}}",
    ]
    for number, light in enumerate(PALETTE):
        for part in ("fill", "stroke"):
            names = [light, *NAMES.get(light, ())]
            which = ",".join(f'{box} svg [{part}="{name}"]' for name in names)
            rules.append(f"{which}{{{part}:var(--draw-{number})}}")
    return f"<style>{''.join(rules)}</style>"


def contrast(one: str, other: str) -> float:
    """How much two colours differ, as WCAG 2 counts it: 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Of a colour as "#rrggbb"; 0 to 1."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
