# SPDX-License-Identifier: MIT
#
# What `net` measured, after figures.awk.

END {
	split("9000 1500", mtus, " ")
	split("write read send", tests, " ")
	printf "%-44s %10s  %10s  %10s\n", "FIGURE", "median", "least", "most"
	for (i = 1; i <= 2; i++) {
		link = ", MTU " mtus[i]
		figure("tcp_" mtus[i], "GB/s", "iperf3, one TCP stream" link)
		figure("udp_" mtus[i], "us", "qperf udp_lat, 64 B" link)
		for (j = 1; j <= 3; j++)
			figure(tests[j] "_bw_" mtus[i], "GB/s", "ib_" tests[j] "_bw, 64 KiB" link)
		for (j = 1; j <= 3; j++)
			figure(tests[j] "_lat_" mtus[i], "us", "ib_" tests[j] "_lat, 64 B" link)
		figure("target_" mtus[i], "us", "ib_read_lat of who computes" link)
		figure("target_cpu_" mtus[i], "us", "CPU time of who computes, a READ" link)
	}

	printf "\n%-60s\n", "RATIO: of times, less is better"
	for (i = 1; i <= 2; i++)
		for (j = 1; j <= 3; j++)
			ratio(tests[j] "_lat_" mtus[i], "udp_" mtus[i], "ib_" tests[j] "_lat 64 B / qperf udp_lat, MTU " mtus[i])

	printf "\n%-60s\n", "RATIO: of rates, more is better"
	for (i = 1; i <= 2; i++)
		for (j = 1; j <= 3; j++)
			ratio(tests[j] "_bw_" mtus[i], "tcp_" mtus[i], "ib_" tests[j] "_bw 64 KiB / TCP, MTU " mtus[i])
}
