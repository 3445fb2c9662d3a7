"""Fused layers: SAGE, GAT, and batch norm with its activation, each as one autograd node."""
