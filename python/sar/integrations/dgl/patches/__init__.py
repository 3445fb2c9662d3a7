"""What SAR replaces in DGL."""
