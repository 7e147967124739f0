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

little_address_space_is_noted() {
	ulimit -S -v 2097152
	"$uroce" doctor >out || :
	grep -q '^note *address space *limited to 2048 MiB: a program takes 256 MiB' out || fail "$(cat out)"
}

files_too_small_for_a_segment_are_a_problem() {
	ulimit -S -f 1000
	status 1 "$uroce" doctor
	grep -q '^problem *file size *limited to' out || fail "$(cat out)"
	grep -q '^problem *device *uroce0 cannot be opened: File too large' out || fail "$(cat out)"
}

unusable_runtime_directory_is_noted() {
	mkdir -m 777 open
	export UROCE_RUNTIME_DIR="$work/open"
	status 0 "$uroce" doctor
	grep -q "^note *device files *cannot be written to $work/open" out || fail "$(cat out)"
}

unfit_library_is_a_problem() {
	install_in "$work"
	cp "$HERE/other/libibverbs.so.1" lib/uroce/
	status 1 bin/uroce doctor
	grep -q '^problem *device *the library cannot be loaded' out || fail "$(cat out)"
	same "last line" '1 problem: programs will not run until mended.' "$(tail -n1 out)"
}

run_case "$@"
