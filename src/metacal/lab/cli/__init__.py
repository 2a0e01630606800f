"""Verbs of the lab, one file each; `metacal.cli.app` gathers them."""
