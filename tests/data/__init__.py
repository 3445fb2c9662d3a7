"""Files: what is read, written, refused."""
