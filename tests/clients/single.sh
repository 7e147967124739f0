#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Programs of the distribution that are no pairs of pingpong or perftest. usage: single.sh FUNCTION

. "$(dirname "$0")/../tools/common.sh"
# A sanitizer's runtime.
[ -z "${PRELOAD:-}" ] || export LD_PRELOAD="$PRELOAD"

# Skips where a package is not installed.
needs() {
	command -v "$1" >/dev/null || skip "no $1"
}

# field NAME REGEX: ibv_devinfo -v has such a line.
field() {
	grep -qE "^[[:space:]]*$1:[[:space:]]+$2\$" out || {
		cat out
		fail "no $1 that is $2"
	}
}

ibv_devices_lists_the_device() {
	status 0 "$uroce" run -- ibv_devices
	grep -qE '^ +uroce0[[:blank:]]+[0-9a-f]{16}$' out || {
		cat out
		fail "no uroce0 with a GUID"
	}
}

ibv_devinfo_shows_a_roce_port() {
	status 0 "$uroce" run -- ibv_devinfo -v
	field hca_id uroce0
	field transport 'InfiniBand \(0\)'
	field node_guid '([0-9a-f]{4}:){3}[0-9a-f]{4}'
	field phys_port_cnt 1
	field max_mr_size 0x800000000000
	field max_qp 65536
	field max_qp_wr 32768
	field max_sge 32
	field max_cq 65536
	field max_cqe '[4-9][0-9]{6}'
	field max_mr 1048576
	field max_qp_rd_atom 128
	field max_qp_init_rd_atom 128
	field atomic_cap 'ATOMIC_HCA \(1\)'
	field max_srq 65536
	field state 'PORT_ACTIVE \(4\)'
	field max_mtu '4096 \(5\)'
	field active_mtu '(256|512|1024|2048|4096) \([1-5]\)' # as the interface is
	field port_lid 0
	field link_layer Ethernet
	field max_msg_sz 0x80000000
	field gid_tbl_len 256
	field 'GID\[ *0\]' '[0-9a-f:.]+, RoCE v2'
}

ibv_devinfo_of_an_unknown_device_fails() {
	status 255 "$uroce" run -- ibv_devinfo -d mlx5_0
	grep -q "IB device 'mlx5_0' wasn't found" err || fail "said: $(cat err)"
}

ibv_asyncwatch_waits() {
	timeout --foreground 100 "$uroce" run -- stdbuf -oL ibv_asyncwatch >out 2>err &
	watch=$!
	until [ -s out ]; do
		kill -0 $watch || fail "ended: $(cat err)"
		sleep 0.05
	done
	kill $watch
	found=0
	wait $watch || found=$?
	same "status after SIGTERM" 143 $found
	grep -q '^uroce0: async event FD' out || fail "said: $(cat out)"
}

# It has no option for a GID index, and so cannot connect over RoCE without a connection manager.
qperf_is_refused_without_a_grh() {
	needs qperf
	port=$((26000 + $$ % 1000))
	timeout --foreground 100 "$uroce" run -- qperf -lp $port >server 2>&1 &
	server=$!
	# Till it listens; its own errors would repeat.
	until "$uroce" run -- qperf -lp $port 127.0.0.1 conf >/dev/null 2>&1; do
		kill -0 $server || fail "ended: $(cat server)"
	done
	# Both ends fail at the same time, and qperf then loses the words now and then: it says no more than "server: ".
	for test in rc_lat uc_bw ud_lat; do
		for _ in 1 2 3 4 5 6 7 8; do
			status 1 "$uroce" run -- qperf -lp $port 127.0.0.1 $test
			grep -qE '(modify QP to RTR|create address handle): Invalid argument' err out && continue 2
			grep -qx 'server: ' err out || break
		done
		fail "$test said: $(cat out err)"
	done
	kill -0 $server || fail "the server ended: $(cat server)"
	kill $server
}

ucx_loads_it() {
	needs ucx_info
	status 0 "$uroce" run -- ucx_info -d
	grep -q 'Memory domain: self' out || fail "no memory domains: $(cat err)"
}

libfabric_finds_the_device() {
	needs fi_info
	status 0 "$uroce" run -- fi_info -p verbs
	grep -q 'domain: uroce0' out || {
		cat out
		fail "no domain uroce0"
	}
}

run_case "$@"
