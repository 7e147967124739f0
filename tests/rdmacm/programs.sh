#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: programs.sh UROCE ATTEND GROUP HOST FIRST_PORT
#
# Runs the rows of one group of programs.table, or of $TABLE: a server and its client. HOST is an address of this host that the client is given, or
# own4, the first address that is no loopback; or lab4 or lab6: each runs on a host of its own (uroce lab), and the client is given the other's address.
# $PRELOAD, if set, is preloaded into the programs: a sanitizer's runtime.
#
# Nobody can see from outside when a server of rdma_cm listens: a client that is refused asks again.
set -u

# The client's side, in the lab too: programs.sh --client LOG COMMAND...
if [ "$1" = --client ]; then
	log=$2
	shift 2
	for ((tries = 100; tries; tries--)); do
		"$@" >"$log" 2>&1
		status=$?
		grep -qiE 'REJECTED, error:? 8|RDMA_CM_EVENT_UNREACHABLE|connection refused|failed to connect|Unexpected CM event bl blka 8' "$log" || exit $status
		sleep 0.1
	done
	exit 1
fi

uroce=$1
attend=$2
group=$3
host=$4
port=$(($5 + $$ % 100))
here=$(dirname "$(realpath "$0")")

# Seconds for one side. Only a hang takes so long, or a machine that nobody should run tests on.
patience=60

own4() {
	ip -4 -o address show scope global 2>/dev/null | awk '{ sub(/\/.*/, "", $4); print $4; exit }'
}

in_lab=
case $host in
lab4) in_lab=1 host=10.77.0.1 ;;
lab6) in_lab=1 host=fd77::1 ;;
own4) host=$(own4) ;;
esac
[ -n "$host" ] || { echo "skipped: no address but loopback"; exit 77; }
if [ $in_lab ]; then
	reason=$("$uroce" lab 1 -- true 2>&1) || { echo "skipped: $reason"; exit 77; }
fi

logs=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM

# Arguments of a command line of the table, quotes and all, into the array `words`.
split() {
	eval "words=($1)"
}

with_preload() {
	[ -z "${PRELOAD:-}" ] || export LD_PRELOAD="$PRELOAD"
	"$@"
}

# On this host: sets server_status and client_status.
run_here() {
	split "$1"
	(with_preload exec "$attend" $patience "$uroce" run -- "${words[@]}") >"$logs/server" 2>&1 &
	server=$!
	split "$2"
	(with_preload exec bash "$0" --client "$logs/client" "$attend" $patience "$uroce" run -- "${words[@]}")
	client_status=$?
	[ $stays = ends ] || kill $server
	# Who was left alone waits for ever.
	[ $client_status = 0 ] || { sleep 1; kill $server 2>/dev/null; }
	wait $server
	server_status=$?
	server=
}

run_in_lab() {
	local services=
	[ $stays = ends ] || services=--services=1
	split "$1"
	local server_words=("${words[@]}")
	split "$2"
	# shellcheck disable=SC2016 # what another shell expands
	"$uroce" lab 2 $services --wait=0ms --raw -- \
		sh -c 'log=$1; shift; "$@" >$log/server 2>&1; echo $? >$log/server_status' sh "$logs" "$attend" $patience "${server_words[@]}" :: \
		sh -c 'log=$1; shift; "$@"; status=$?; echo $status >$log/client_status; exit $status' sh "$logs" \
		bash "$0" --client "$logs/client" "$attend" $patience "${words[@]}" >"$logs/lab" 2>&1
	server_status=$(cat "$logs/server_status" 2>/dev/null || echo 124)
	client_status=$(cat "$logs/client_status" 2>/dev/null || echo 124)
}

rows=0
failed=0
while read -r row_group stays expected commands; do
	[ "$row_group" = "$group" ] || continue
	rows=$((rows + 1))
	commands=${commands//HOST/$host}
	commands=${commands//PORT/$port}
	port=$((port + 1))
	[[ $host == *:* && $commands == *"rping -s"* ]] && commands=${commands/rping -s/rping -s -a ::0}
	[[ $host == *:* && $commands == *"ib_"* ]] && commands=${commands//-R/-R --ipv6}
	rm -f "$logs"/*
	if [ $in_lab ]; then
		run_in_lab "${commands%% :: *}" "${commands##* :: }" </dev/null
	else
		run_here "${commands%% :: *}" "${commands##* :: }" </dev/null
	fi
	verdict=ok
	[ $client_status = 0 ] || verdict=FAILED
	[ $stays = stays ] || [ $server_status = 0 ] || verdict=FAILED
	[ "$expected" = - ] || grep -qE "$expected" "$logs/client" || verdict=FAILED
	printf '%-6s  server %-3s  client %-3s  %s\n' $verdict $server_status $client_status "$commands"
	[ $verdict = ok ] && continue
	failed=$((failed + 1))
	echo "-- the server printed:"
	cat "$logs/server"
	echo "-- the client printed:"
	cat "$logs/client" "$logs/lab" 2>/dev/null
	echo "--"
done <"${TABLE:-$here/programs.table}"

echo "$group at $host: $rows rows, $failed failed"
[ $rows -gt 0 ] && [ $failed = 0 ]
