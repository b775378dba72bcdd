"""How a call of the compiled kernel ends."""

OK = 0
MORE_RANDOMNESS = 1  # the stream was too short: call again with a longer one
TOO_MANY_TRIALS = 2  # no encoder produces this (probability below 1e-26 per block)
BUFFER_FULL = 3
TRAILING_BYTES = 4
