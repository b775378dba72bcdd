"""Privacy, in three layers: events say what was released, accountants what it costs, calibration how much noise."""
