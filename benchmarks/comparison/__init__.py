"""quaver beside other tools on real models: same calibration data, same eval_func, same criterion.

    python -m benchmarks.comparison                       # everything; hours; resumes where it was stopped
    python -m benchmarks.comparison --quick               # a few models, quaver and ONNX Runtime's own tool

`setups` says on what, `runs` gets every tool's answer, `measuring` looks at the answers with one and the same runtime,
`rows` puts both together, `table` and `plots` show them.
"""
