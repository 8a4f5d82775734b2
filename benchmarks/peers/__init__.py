"""Other tools on the same models: each in a virtual environment and a process of its own.

Inside a tool's process run `job.py` and one of the `run_*.py` files; they know nothing of quaver (but for `run_quaver`,
of course) and need numpy and the tool alone. Outside, `environments.py` prepares what a tool needs, and `launch.py`
starts it with a time limit and reads what it reports, also when it crashed or was stopped.
"""
