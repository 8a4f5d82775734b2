"""The words of other tools: what their configuration files say, as settings of quaver."""

from quaver.api.words.found import Problem, Words
from quaver.api.words.neural_compressor import translate

__all__ = ["Problem", "Words", "translate"]
