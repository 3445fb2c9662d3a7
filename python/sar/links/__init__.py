"""Links: rows of nodes anywhere in the graph, pairs of nodes that are no edges, and scores of both."""
