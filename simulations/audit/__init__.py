"""`papfl audit`: a lower bound on ε that holds with stated confidence, from one training run with planted records."""
