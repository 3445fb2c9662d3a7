"""Message passing: built-in messages, cross-type reducers."""
