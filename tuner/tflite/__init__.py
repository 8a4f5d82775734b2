"""TFLite's names on quaver's engine.

from quaver.tflite import debugger
"""

from quaver.tflite import debugger

__all__ = ["debugger"]
