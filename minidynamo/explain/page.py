"""An Explanation as one self-contained HTML file: no scripts or pictures from elsewhere.

In:   an `Explanation`.  Out: HTML text, one section per frame and stage, with a table of contents.
"""

from typing import Any
import html

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#1a1a1a;background:#fff}
header{padding:20px 28px;border-bottom:1px solid #ddd;background:#fafafa}
main{display:grid;grid-template-columns:minmax(150px,210px) minmax(0,1fr);gap:24px;
padding:16px 28px;max-width:1500px}
nav{position:sticky;top:12px;align-self:start;font-size:14px;max-height:95vh;overflow:auto}
nav a{display:block;padding:2px 0;color:#174ea6}
section{margin-bottom:28px}h2{margin:28px 0 4px;font-size:20px}h3{margin:18px 0 6px;font-size:16px}
pre{font-size:12px;overflow:auto}table{border-collapse:collapse;font-size:13px}
td,th{border-bottom:1px solid #eee;vertical-align:top}
svg{max-width:none}@media(max-width:760px){main{grid-template-columns:1fr}nav{position:static}}
"""


def render(explanation: Any) -> str:
    title = html.escape(f"How {explanation.name} was compiled")
    links, sections = [], []
    for number, frame in enumerate(explanation.frames):
        links.append(f"<b>{html.escape(frame.record.function)}</b>")
        sections.append(f"<h2>{html.escape(frame.record.function)}</h2>")
        for key, heading in frame.SECTIONS:
            anchor = f"f{number}-{key}"
            links.append(f'<a href="#{anchor}">{heading}</a>')
            sections.append(
                f'<section id="{anchor}"><h3>{heading}</h3>{getattr(frame, key)._repr_html_()}'
                "</section>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><header><h1>{title}</h1>"
        f"{explanation._repr_html_()}</header>"
        f"<main><nav>{''.join(links)}</nav><div>{''.join(sections)}</div></main></body></html>"
    )
