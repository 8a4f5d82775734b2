"""Show runs: the data behind the views, the figures, the report, the live page, and trackers."""

if __name__ == "insights":
    raise ImportError("this folder is the package quaver.insights: write `import quaver.insights`")

from quaver.insights.data.run_reader import FollowedRun, RunData, RunState
from quaver.insights.plot import Plot
from quaver.insights.report.write import write_report

__all__ = ["FollowedRun", "Plot", "RunData", "RunState", "write_report"]
