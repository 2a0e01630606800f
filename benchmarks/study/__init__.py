"""Does meta-calibration help, and how robust are its defaults? Small real data sets, many seeds, minutes on a CPU."""
