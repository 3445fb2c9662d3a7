"""One process, no session with others."""
