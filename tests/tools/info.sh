#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

# claim SLOT [serve]: starts a process with that slot; its id is left in $claimer.
claim() {
	mkfifo said
	"$HERE/claim" "$@" >said &
	claimer=$!
	trap 'kill -KILL $claimer; rm -rf "$work"' EXIT
	read -r line <said
	same "the claimer's word" claimed "$line"
}

stopped_process_does_not_hang_it() {
	claim 1021
	while ! grep -q '^[0-9]* (claim) T' "/proc/$claimer/stat"; do :; done
	# The claimer's queue holds one or two; then the kernel does not answer for it any more.
	for _ in 1 2 3 4; do
		found=0
		timeout 60 "$uroce" info >out 2>err || found=$?
		[ $found -lt 124 ] || fail "info did not end"
		grep -q '0xff4000-0xff7fff' out || fail "the slot is not shown: $(cat out)"
	done
}

process_is_listed_with_its_queue_pairs() {
	claim 1022 serve
	"$uroce" info >out || :
	line=$(grep '0xff8000-0xffbfff' out) || fail "the slot is not shown: $(cat out)"
	# shellcheck disable=SC2086 # words
	set -- $line
	same "pid, uid and command" "$claimer $(id -u) claim" "$1 $2 $4"

	"$uroce" info --json >out || :
	grep -q "\"pid\": *$claimer" out || fail "not in: $(cat out)"
	grep -q '"slot": *1022' out || fail "not in: $(cat out)"
}

# regions WAY: starts a program that registers a page, and leaves in out how its region is reached.
regions() {
	"$uroce" run --memory="$1" -- ibv_rc_pingpong -g 0 -p 0 >said 2>&1 &
	server=$!
	trap 'kill -KILL $server 2>/dev/null || :; rm -rf "$work"' EXIT
	until "$uroce" info >all && grep -A2 "^ *$server " all >out && grep -q 'regions:.*[1-9]' out; do
		kill -0 $server || fail "$(cat said)"
	done
	kill -KILL $server
}

regions_are_counted_by_how_they_are_reached() {
	regions mapped
	grep -q 'regions: 1 mapped, 0 partly, 0 not$' out || fail "$(cat out)"
	regions cma
	grep -q 'regions: 0 mapped, 0 partly, 1 not$' out || fail "$(cat out)"
	grep -q 'of 1 of them: .*UROCE_MEMORY' out || fail "$(cat out)"
}

device_is_shown_as_a_program_sees_it() {
	status 0 "$uroce" info
	"$uroce" run -- ibv_devinfo -v >seen
	guid=$(sed -n 's/.*node_guid:[[:space:]]*//p' seen | head -n1 | tr -d :)
	grep -q "uroce0: node GUID $guid" out || fail "GUID is not $guid: $(cat out)"
	for limit in max_qp max_cqe max_mr max_mw max_srq; do
		value=$(awk -v name="$limit:" '$1 == name { print $2; exit }' seen)
		grep -q "^ *$limit  *$value\$" out || fail "$limit is not $value: $(cat out)"
	done
	grep -q 'GID   0 ' out || fail "no GID 0: $(cat out)"
}

owner_of_a_port_is_shown() {
	other_user_takes_port 24791
	UROCE_PORT=24791 "$uroce" info >out || :
	"$uroce" info >other || :
	UROCE_PORT=24791 "$uroce" info --json >json || :
	kill $holder
	grep -q 'GID .*::ffff:127.0.0.1 .* lo .*UDP port of user 65534' out || fail "$(cat out)"
	grep -q '"udp_port_uid": *65534' json || fail "$(cat json)"
	! grep -q 65534 other || fail "of another port: $(cat other)"
}

wrong_setting_is_said() {
	UROCE_PROFILE=no-such-card status 1 "$uroce" info
	same "lines on stderr" 1 "$(wc -l <err)"
	grep -q "UROCE_PROFILE: there is no profile 'no-such-card'; .*connectx-3" err || fail "$(cat err)"
	grep -q '^processes' out || fail "$(cat out)"
}

absent_interface_is_said() {
	UROCE_DEVICES=a:nope status 0 "$uroce" info
	same "lines on stderr" 1 "$(wc -l <err)"
	grep -q "no interface 'nope' (of device 'a'); the interfaces are .*lo" err || fail "$(cat err)"
	grep -q 'port 1: down' out || fail "$(cat out)"
}

run_case "$@"
