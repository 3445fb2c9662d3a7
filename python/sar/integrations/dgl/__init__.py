"""The only files that import graph libraries; nothing here is imported unless it is needed."""
