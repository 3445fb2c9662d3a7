"""What type checkers see of the package: `make lint` checks these scripts as they check those of users."""
