"""The colours of drawings, in a light place and in a dark one.

In:   the class of the box that a drawing stands in.  Out: a `<style>`.

    >>> picture_style()[:7]
    '<style>'

A drawing is written in light colours, so that a file of it can be printed.  In a notebook or on a
page a style sheet puts the colour of the reader's theme in place of each: selectors look for the
light one.  A drawing that uses a colour which is not in PALETTE fails a test.
"""

from .views import DARK, LIGHT

INK = ("#1f1f1f", "#e8e8e8")  # of what has no colour of its own: text
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
