# SPDX-License-Identifier: MIT
#
# What `run` measured, after figures.awk. -v too_good=SHARE: above this share of memcpy's rate something was not copied.

# Bandwidth next to memcpy: more than that can only be had by not copying.
function share(name, size, text, remark) {
	remark = ""
	if ((name in m) && m[name] > too_good * m["memcpy_" size])
		remark = "  too good: something was not copied"
	ratio(name, "memcpy_" size, text, remark)
}
END {
	printf "%-44s %10s  %10s  %10s\n", "FIGURE", "median", "least", "most"
	figure("line", "us", "machine: cache line, one way")
	figure("pipe", "us", "machine: pipe, one way, sleeping")
	figure("memcpy_65536", "GB/s", "machine: memcpy, 64 KiB")
	figure("memcpy_1048576", "GB/s", "machine: memcpy, 1 MiB")
	figure("ucx_put_lat", "us", "UCX shared memory: put, 8 B")
	figure("ucx_tag_lat", "us", "UCX shared memory: tag, 8 B")
	figure("ucx_get", "us", "UCX shared memory: get, 8 B")
	figure("ucx_put_bw_65536", "GB/s", "UCX shared memory: put, 64 KiB")
	figure("ucx_put_bw_1048576", "GB/s", "UCX shared memory: put, 1 MiB")
	figure("ucx_put_8_rate", "M/s", "UCX shared memory: put rate, 8 B")
	figure("ucx_tag_8_rate", "M/s", "UCX shared memory: tag rate, 8 B")
	figure("ofi_pingpong_64", "us", "libfabric shm: pingpong, 64 B")
	figure("ofi_pingpong_65536", "GB/s", "libfabric shm: pingpong, 64 KiB")
	figure("ofi_pingpong_1048576", "GB/s", "libfabric shm: pingpong, 1 MiB")
	figure("write_lat", "us", "uroce: ib_write_lat, 8 B")
	figure("send_lat", "us", "uroce: ib_send_lat, 8 B")
	figure("send_lat_64", "us", "uroce: ib_send_lat, 64 B")
	figure("event_lat", "us", "uroce: ib_send_lat -e, 8 B")
	figure("read_lat", "us", "uroce: ib_read_lat, 8 B")
	figure("atomic_lat", "us", "uroce: ib_atomic_lat")
	split("65536 1048576", sizes, " ")
	kib[65536] = "64 KiB"
	kib[1048576] = "1 MiB"
	split("write read send", tests, " ")
	split("1 10 32", lists, " ")
	for (i = 1; i <= 2; i++)
		for (j = 1; j <= 3; j++)
			figure(tests[j] "_bw_" sizes[i], "GB/s", "uroce: ib_" tests[j] "_bw, " kib[sizes[i]])
	for (j = 1; j <= 3; j += 2)
		for (i = 1; i <= 3; i++)
			figure(tests[j] "_8_list_" lists[i] "_rate", "M/s",
				"uroce: ib_" tests[j] "_bw rate, 8 B, post list " lists[i])

	printf "\n%-60s\n", "RATIO: of times, less is better"
	ratio("write_lat", "line", "ib_write_lat 8 B / cache line, one way")
	ratio("write_lat", "ucx_put_lat", "ib_write_lat 8 B / UCX put 8 B")
	ratio("send_lat", "line", "ib_send_lat 8 B / cache line, one way")
	ratio("send_lat", "ucx_tag_lat", "ib_send_lat 8 B / UCX tag 8 B")
	ratio("send_lat_64", "ofi_pingpong_64", "ib_send_lat 64 B / libfabric shm pingpong 64 B")
	ratio("read_lat", "ucx_get", "ib_read_lat 8 B / UCX get 8 B")
	ratio("atomic_lat", "read_lat", "ib_atomic_lat / ib_read_lat 8 B")
	ratio("event_lat", "pipe", "ib_send_lat -e 8 B / pipe, one way")

	printf "\n%-60s\n", "RATIO: of rates, more is better"
	for (i = 1; i <= 2; i++)
		for (j = 1; j <= 3; j++)
			share(tests[j] "_bw_" sizes[i], sizes[i], "ib_" tests[j] "_bw " kib[sizes[i]] " / memcpy " kib[sizes[i]])
	for (i = 1; i <= 2; i++)
		for (j = 1; j <= 3; j++)
			ratio(tests[j] "_bw_" sizes[i], "ucx_put_bw_" sizes[i],
				"ib_" tests[j] "_bw " kib[sizes[i]] " / UCX put " kib[sizes[i]])
	for (i = 1; i <= 3; i++) {
		ratio("write_8_list_" lists[i] "_rate", "ucx_put_8_rate", "ib_write_bw 8 B rate, post list " lists[i] " / UCX put rate")
		ratio("send_8_list_" lists[i] "_rate", "ucx_tag_8_rate", "ib_send_bw 8 B rate, post list " lists[i] " / UCX tag rate")
	}
	for (j = 1; j <= 3; j += 2)
		for (i = 2; i <= 3; i++)
			ratio(tests[j] "_8_list_" lists[i] "_rate", tests[j] "_8_list_1_rate",
				"ib_" tests[j] "_bw 8 B rate, post list " lists[i] " / list 1")
}
