"""What workers exchange, hold and answer."""
