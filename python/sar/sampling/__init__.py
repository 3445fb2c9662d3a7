"""Training on sampled neighbourhoods."""
