"""Real federations: keys and certificates, processes on one machine, compose files, and what an operator runs."""
