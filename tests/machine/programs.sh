#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs a program that uses the library under a tool; the tool must see it end well. usage: programs.sh TOOL PROGRAM [ARGUMENT]...
set -u

tool=$1
shift
if [ "$tool" = jemalloc ]; then
	library=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libjemalloc\.so\.2 .* => //p' | head -n1)
	[ -n "$library" ] || { echo "skipped: jemalloc is not installed"; exit 77; }
else
	command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
	echo "$*"
	cat "$log"
	exit 1
}

case $tool in
gdb)
	# Stops where a verb is called, as somebody who debugs does, and goes on.
	gdb -batch -ex 'set breakpoint pending on' -ex 'break ibv_create_cq' -ex run -ex 'info threads' -ex delete \
		-ex continue --args "$@" >"$log" 2>&1
	grep -q '"uroce"' "$log" || fail "the helper's thread does not show its name"
	grep -q 'exited normally' "$log" || fail "the program did not end well"
	;;
strace)
	strace -f -o "$log" "$@" || fail "status $?"
	grep -q 'exited with 0' "$log" || fail "the program did not end well"
	;;
valgrind)
	# It reads all that a segment could hold, of which there is less where there are fewer addresses.
	ulimit -v 16777216
	valgrind --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite "$@" >"$log" 2>&1 ||
		fail "status $?"
	grep -q 'ERROR SUMMARY: 0 errors' "$log" || fail "valgrind says nothing"
	;;
jemalloc)
	LD_PRELOAD=$library "$@" >"$log" 2>&1 || fail "status $?"
	;;
esac
exit 0
