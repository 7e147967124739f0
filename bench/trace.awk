# SPDX-License-Identifier: MIT
#
# Prints what bench/trace has measured; figures.awk reads it.

function added(name, over, text) {
	if (m[name] && m[over])
		printf "%-60s %8.1f ns\n", text, 1000 / m[name] - 1000 / m[over]
}
END {
	printf "%-44s %10s  %10s  %10s\n", "ib_write_bw, 8 B", "median", "least", "most"
	figure("paced", "M/s", "paced, not traced")
	figure("paced_traced", "M/s", "paced, traced")
	figure("without", "M/s", "without the branches")
	figure("off", "M/s", "not traced")
	figure("on", "M/s", "traced")

	printf "\n%-60s\n", "RATIO: of rates, more is better"
	ratio("paced_traced", "paced", "traced / not, at 1 M/s")
	ratio("off", "without", "not traced / without the branches")
	printf "\n%-60s\n", "ADDED to each message, as fast as it goes; 150 ns are 15 % at 1 M/s"
	added("off", "without", "branches")
	added("on", "off", "tracing")
}
