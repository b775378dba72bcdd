"""What a data holder does: one private context, and clipped, privatised coefficient gradients."""
