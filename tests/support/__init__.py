"""What tests of several kinds share. Streams begin with it imported: PYTEST_DONT_REWRITE."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the repository."""
