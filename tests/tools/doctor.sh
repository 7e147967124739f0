#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

machine_that_runs_the_tests_is_fit() {
	status 0 "$uroce" doctor
	grep -q '^ok *device *uroce0 opens' out || fail "$(cat out)"
	same "last line" 'Nothing prevents programs from running.' "$(tail -n1 out)"
}

few_descriptors_are_noted() {
	ulimit -S -n 100
	"$uroce" doctor >out || :
	grep -q '^note *open files *100 descriptors' out || fail "$(cat out)"
}

# says ITEM ACTION: the item is a problem, and the line below it says what to do.
says() {
	grep -A1 "^problem *$1" out | grep -q -- "-> .*$2" || fail "no '$1' with '$2' in: $(cat out)"
}

too_few_descriptors_are_the_problem() {
	for limit in 4 5 6 7 8; do
		(
			# What the test was started with counts too.
			exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
			ulimit -S -n $limit
			exec "$uroce" doctor
		) >out || :
		says "open files *$limit descriptors only" 'ulimit -n 1024'
		says 'device *uroce0 cannot be opened: Too many open files' 'see open files above'
		if grep -e '-> allow' -e '-> apt' out; then fail "misleading with $limit: $(cat out)"; fi
	done
}

little_address_space_is_noted() {
	ulimit -S -v 2097152
	"$uroce" doctor >out || :
	grep -q '^note *address space *limited to 2048 MiB: a program takes 256 MiB' out || fail "$(cat out)"
}

files_too_small_for_a_segment_are_a_problem() {
	# In blocks of 512 bytes; the output goes to a file too.
	ulimit -S -f 200
	status 1 "$uroce" doctor
	says 'file size *limited to 100 KiB' 'ulimit -f unlimited'
	says 'device *uroce0 cannot be opened: File too large' 'see file size above'
	same "last line" '2 problems: programs will not run until mended.' "$(tail -n1 out)"
}

wrong_setting_is_the_problem() {
	UROCE_PROFILE=no-such-card status 1 "$uroce" doctor
	says "settings *UROCE_PROFILE: there is no profile 'no-such-card'" 'connectx-3, connectx-5'
	same "last line" '1 problem: programs will not run until mended.' "$(tail -n1 out)"
	UROCE_DEVICES=a:lo,a status 1 "$uroce" doctor
	says "settings *UROCE_DEVICES: device 'a' is named twice" 'NAME:INTERFACE'
}

absent_interface_is_said() {
	UROCE_DEVICES=a:nope status 1 "$uroce" doctor
	grep -q "^note *settings *UROCE_DEVICES: there is no interface 'nope' (of device 'a')" out || fail "$(cat out)"
	says 'device *a opens, but its port is down' 'UROCE_DEVICES'
	UROCE_DEVICES=a:lo+nope status 0 "$uroce" doctor
	grep -q "^note *settings .*'nope'" out || fail "$(cat out)"
}

unusable_runtime_directory_is_noted() {
	mkdir -m 777 open
	export UROCE_RUNTIME_DIR="$work/open"
	status 0 "$uroce" doctor
	grep -q "^note *device files *cannot be written to $work/open" out || fail "$(cat out)"
}

port_of_another_user_is_noted() {
	other_user_takes_port 24791
	UROCE_PORT=24791 status 0 "$uroce" doctor
	kill $holder
	grep -q '^note *wire *UDP port 24791 of .* is that of user 65534' out || fail "$(cat out)"
	UROCE_PORT=49152 status 1 "$uroce" doctor
	says "settings *UROCE_PORT: '49152' is no port" '1 to 49151'
}

unfit_library_is_a_problem() {
	install_in "$work"
	cp "$HERE/other/libibverbs.so.1" lib/uroce/
	status 1 bin/uroce doctor
	grep -q '^problem *device *the library cannot be loaded' out || fail "$(cat out)"
	same "last line" '1 problem: programs will not run until mended.' "$(tail -n1 out)"
}

run_case "$@"
