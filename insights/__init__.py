"""Who shows: the report and the live page."""

if __name__ == "insights":
    raise ImportError("this folder is the package quaver.insights: write `import quaver.insights`")
