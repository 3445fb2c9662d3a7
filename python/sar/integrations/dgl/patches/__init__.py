"""What SAR replaces in DGL."""

OTHERWISE = (
    "Install a version that SAR supports (1.1 to 2.1), or set sar.Config.patch_dgl = False and use the layers of sar.nn"
)
"""What errors say to do where a name of DGL is missing."""
