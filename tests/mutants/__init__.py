"""Planted bugs: privacy defects seen in the field, put into a copy of the code one at a time. A named test must fail."""
