"""Who explains: tables, statistics, profiles, causes."""

if __name__ == "diagnosis":
    raise ImportError("this folder is the package quaver.diagnosis: write `import quaver.diagnosis`")
