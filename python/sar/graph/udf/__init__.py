"""Python message and reduce functions."""
