// Unpack plotly's script and draw each figure; a figure in a closed part is drawn when the part is opened.
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
