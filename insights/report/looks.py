"""How the report looks, on a screen and on paper."""

CSS = """
:root { --ink: #1F2937; --faint: #6B7280; --line: #E5E7EB; --met: #00734F; --bad: #B3450B; --soft: #F8FAFC; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: white;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header, main { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { position: sticky; top: 0; background: white; border-bottom: 1px solid var(--line); z-index: 5;
  display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 24px; padding-top: 10px; padding-bottom: 8px; }
h1 { font-size: 17px; margin: 0; } h2 { font-size: 21px; margin: 36px 0 10px; }
h3 { font-size: 16px; margin: 24px 0 6px; }
h4 { margin: 12px 0 0; }
nav a { margin-right: 16px; color: #0072B2; text-decoration: none; }
section { scroll-margin-top: 60px; }
.headline { font-size: 20px; font-weight: 600; margin: 8px 0 4px; }
.headline.met { color: var(--met); } .headline.not-met, .headline.nothing, .headline.warned { color: var(--bad); }
.faint { color: var(--faint); font-size: 13px; } .warn { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 10px; margin: 14px 0; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; background: var(--soft); }
.card .label { color: var(--faint); font-size: 13px; } .card .value { font-size: 19px; font-weight: 600; }
.scroll { overflow: auto; max-height: 620px; border: 1px solid var(--line); border-radius: 6px; margin: 10px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 4px 10px; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
.name { min-width: 250px; }
th { position: sticky; top: 0; background: var(--soft); white-space: nowrap; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 8px 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--soft); border: 1px solid var(--line);
  border-radius: 4px; padding: 1px 6px; overflow-wrap: anywhere; }
button.copy { margin-left: 8px; font-size: 12px; }
details { border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px; margin: 6px 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
@media print { header { position: static; } .scroll { max-height: none; overflow: visible; }
  button.copy { display: none; }
  .figure { break-inside: avoid; } }
"""
