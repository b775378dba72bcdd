"""Every figure that README and docs quote, measured by one command each (`make bench` runs them all)."""
