"""The ``sar`` command."""
