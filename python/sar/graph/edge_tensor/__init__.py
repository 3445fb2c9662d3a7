"""Edge tensors, computed where they are reduced."""
