"""Workers that are killed at random moments, in jobs that are started again: the program behind ``make kills``."""
