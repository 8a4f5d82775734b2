"""Find the causes of an op's quantization error and advise what to do."""
