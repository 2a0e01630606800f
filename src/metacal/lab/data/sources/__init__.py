"""One file per source: what it looks for on disk, and how that becomes a `Dataset`."""
