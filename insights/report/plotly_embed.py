"""Figures in a file of their own: plotly's script once, packed, and the data of each figure beside its place."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from typing import Any

from quaver.insights.report.html import Html, element

# Unpacks plotly's script and draws each figure, those in a closed part when it is opened.
_DRAW = """\
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.appendChild(script);
  const draw = place => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const figure = JSON.parse(place.querySelector("script").textContent);
    place.querySelector("noscript")?.remove();
    Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false});
  };
  for (const place of document.querySelectorAll(".figure")) {
    const part = place.closest("details");
    if (part && !part.open) part.addEventListener("toggle", () => draw(place), {once: true});
    else draw(place);
  }
  for (const button of document.querySelectorAll("button.copy"))
    button.addEventListener("click", () => navigator.clipboard.writeText(button.previousElementSibling.textContent));
})();
"""


def drawn(figure: Any) -> Html:
    """The place of a figure, with its data."""
    # Six digits are more than anybody sees, and a third of what a float takes.
    short = json.loads(figure.to_json(), parse_float=lambda text: float(f"{float(text):.6g}"))
    data = (
        json.dumps(short, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
    height = f"min-height:{int(figure.layout.height or 300)}px"
    none = element("noscript", Html("The figure needs JavaScript; the tables do not."))
    return element("div", none, Html(f'<script type="application/json">{data}</script>'), class_="figure", style=height)


@functools.cache
def scripts() -> Html:
    """What draws the figures: to be put at the end of the page, once."""
    from plotly.offline import get_plotlyjs

    packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
    return Html(f'<script id="plotly" type="text/plain">{packed}</script><script>{_DRAW}</script>')
