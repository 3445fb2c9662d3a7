"""What tests of several kinds share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the repository."""
