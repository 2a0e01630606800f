"""The paper: its tables and figures as data, their published values, and how ours are laid beside them."""
