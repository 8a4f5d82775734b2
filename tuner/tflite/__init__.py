"""The names of TFLite's debugger, implemented by quaver.

from quaver.tflite import debugger
"""

from quaver.tflite import debugger

__all__ = ["debugger"]
