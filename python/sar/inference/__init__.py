"""Full-graph inference and evaluation of trained models, as ``sar infer`` and ``sar evaluate`` run them."""
