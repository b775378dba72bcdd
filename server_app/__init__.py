"""What the trusted server does: hold the generator and the cached contexts, run the schedule, apply eq. 6."""
