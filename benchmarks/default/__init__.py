"""How the default of `MetaCalibrator` is chosen and confirmed; the rule is in docs/design/default.md."""
