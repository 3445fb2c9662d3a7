"""PyG's layers on split graphs: what is replaced in torch_geometric, and its data objects."""
