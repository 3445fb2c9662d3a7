"""Results by the nodes' original ids: written by all workers, joined into one file."""
