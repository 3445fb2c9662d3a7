"""Edge indices of split graphs, as layers of PyG take them."""
