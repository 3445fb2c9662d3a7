"""Pages about runs, made of the logs that :class:`sar.RunLog` keeps."""
