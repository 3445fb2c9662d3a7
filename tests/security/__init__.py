"""Who is let into a job."""
