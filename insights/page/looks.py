"""How the page looks: as the report does, with a frame around it."""

from quaver.insights.report.looks import CSS

_PAGE = """
header { max-width: none; align-items: center; padding: 8px 24px; gap: 4px 20px; }
.run { min-width: 340px; font-size: 14px; } .state { font-size: 13px; color: var(--faint); }
.state.running { color: #005A8C; font-weight: 600; }
.state.killed, .state.unreadable { color: var(--bad); font-weight: 600; }
main, .tabs-frame, #damage { max-width: 1320px; margin: 0 auto; padding: 0 24px; }
#damage:not(:empty) { padding: 10px 24px; }
.tabs-frame { margin-top: 8px; } .view { padding-top: 10px; }
.tab { padding: 8px 10px !important; font-size: 14px; border: 0 !important; background: white !important;
  border-bottom: 2px solid var(--line) !important; cursor: pointer; }
.chosen { border-bottom: 2px solid #0072B2 !important; font-weight: 600; color: var(--ink) !important; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 24px; }
.columns > div { min-width: 0; }
.bar { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: center; margin: 8px 0; }
.radio label { margin-right: 14px; font-size: 14px; } .small { min-width: 200px; font-size: 14px; }
.command { display: flex; align-items: flex-start; gap: 8px; margin-bottom: 6px; }
.command code { flex: 1; } .clip { cursor: pointer; font-size: 16px; }
.grid { --ag-font-size: 13px; } .why { font-weight: 600; }
pre { white-space: pre-wrap; background: var(--soft); border: 1px solid var(--line); padding: 8px; max-height: 300px;
  overflow: auto; font-size: 12px; }
ul { margin: 6px 0; padding-left: 20px; } li { overflow-wrap: anywhere; }
"""

INDEX = (
    "<!doctype html><html lang=en><head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}"
    f"<style>{CSS}{_PAGE}</style></head>"
    "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
)
