"""One figure a file, made with plotly: the same in Python, on the page and in the report."""
