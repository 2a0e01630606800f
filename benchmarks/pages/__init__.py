"""Pages with measured figures, built from templates in ``docs/templates`` and from files in ``results``."""
