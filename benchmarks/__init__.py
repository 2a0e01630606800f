"""Measurements side by side with other libraries."""
