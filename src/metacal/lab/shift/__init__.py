"""A run under shift: its figures on every corruption and severity."""
