"""Running papfl on one machine, and looking at the results."""
