"""Hostile input: every door through which bytes from outside come in, as a function of those bytes.

`test_hostile.py` opens them with hypothesis in every test run, `fuzz.py` with a coverage-guided fuzzer (`make fuzz`).
"""
