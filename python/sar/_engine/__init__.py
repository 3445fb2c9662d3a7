"""The engine's shared library: signatures, typed calls, the session of this process."""
