"""How jobs start, fail and end."""
