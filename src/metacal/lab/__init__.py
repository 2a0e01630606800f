"""The lab: what trains for you and reproduces the paper (`metacal[lab]`). The library never imports it."""
