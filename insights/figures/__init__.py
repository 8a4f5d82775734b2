"""The plotly figures, one topic per file: the same in Python, on the page and in the report."""
