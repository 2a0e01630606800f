"""Meta-calibration in the trainer people already have; nothing here is imported before it is asked for.

``metacal.integrations.sklearn``, ``.lightning`` and ``.transformers`` each need that library; ``.loggers`` sends
figures to whatever logger a Lightning or Fabric loop has.
"""
