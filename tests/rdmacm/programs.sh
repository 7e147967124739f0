#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: programs.sh UROCE ATTEND GROUP HOST FIRST_PORT
#
# Runs the rows of one group of programs.table: a server, and its client when that listens. HOST is the address that the client is
# given: one of this host, or own4, its first one that is no loopback; or lab4 or lab6: each runs on a host of its own (uroce lab).
# $TABLE is another table. $PRELOAD, if set, is preloaded into the programs: a sanitizer's runtime.
#
# Some servers stop listening, and listen again a moment later, for what the client connects next; and between binding and
# listening is a moment too. On a machine that is busy a client may come in between, and is refused, as by any rdma_cm. Then both
# begin anew.
set -u

uroce=$1
attend=$2
group=$3
host=$4
port=$(($5 + $$ % 100))
here=$(dirname "$(realpath "$0")")

# Seconds for one side. Only a hang takes so long, or a machine that nobody should run tests on.
patience=60
attempts=20
refused='REJECTED[,;] error:? 8|CM event bl blka 8|connection refused|RDMA_CM_EVENT_UNREACHABLE'

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

# In a subshell only: it becomes the command.
start() {
	[ -z "${PRELOAD:-}" ] || export LD_PRELOAD="$PRELOAD"
	exec "$attend" $patience "$uroce" run -- "$@"
}

# listening PORT: has a program that port of rdma_cm, or does it listen there on TCP? udaddy takes no port.
listening() {
	local wanted=$1
	[ "$group" != udaddy ] || wanted=7174
	grep -q "@uroce/cm/[0-9a-f]*/$wanted/" /proc/net/unix ||
		cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$(printf %04X "$wanted") [0-9A-F:]* 0A " ||
		cat /proc/net/udp /proc/net/udp6 2>/dev/null | grep -q ":$(printf %04X "$wanted") "
}

# run_here SERVER CLIENT: on this host; sets server_status and client_status.
run_here() {
	split "$1"
	(start "${words[@]}") >"$logs/server" 2>&1 &
	server=$!
	# attend ends it, if nothing else does.
	while kill -0 $server 2>/dev/null && ! listening "$port"; do sleep 0.02; done
	split "$2"
	(start "${words[@]}") >"$logs/client" 2>&1
	client_status=$?
	# Who stays, or was left alone, waits for ever.
	if [ "$stays" = stays ] || [ $client_status != 0 ]; then
		kill $server 2>/dev/null
	fi
	wait $server
	server_status=$?
	server=
}

# run_in_lab SERVER CLIENT: the same between two hosts.
run_in_lab() {
	local services= server_words wait=listen
	# Its server has a UDP socket only.
	[ "$group" != udpong ] || wait=1s
	[ "$stays" = ends ] || services=--services=1
	split "$1"
	server_words=("${words[@]}")
	split "$2"
	# shellcheck disable=SC2016 # what another shell expands
	local script='log=$1; shift; "$@" >$log 2>&1; status=$?; echo $status >${log}_status; exit $status'
	"$attend" $((2 * patience)) "$uroce" lab 2 $services --wait=$wait --raw -- \
		sh -c "$script" sh "$logs/server" "$attend" $patience "${server_words[@]}" :: \
		sh -c "$script" sh "$logs/client" "$attend" $patience "${words[@]}" >"$logs/lab" 2>&1
	server_status=$(cat "$logs/server_status" 2>/dev/null || echo 124)
	client_status=$(cat "$logs/client_status" 2>/dev/null || echo 124)
}

# What programs need to be told for IPv6.
for_family() {
	local commands=$1
	if [[ $host == *:* ]]; then
		# All of IPv4 is where they listen by themselves, and with rdma_cm that is IPv4 alone.
		commands=${commands/#rping -s/rping -s -a ::0}
		commands=${commands/#ucmatose/ucmatose -b ::0}
		commands=${commands/#udaddy/udaddy -b ::0}
		commands=${commands/#rdma_server/rdma_server -s ::0}
		commands=${commands/#rstream/rstream -b ::0}
		commands=${commands/#riostream/riostream -b ::0}
	fi
	echo "$commands"
}

rows=0
failed=0
while read -r row_group stays expected row; do
	[ "$row_group" = "$group" ] || continue
	rows=$((rows + 1))
	for ((attempt = 1; attempt <= attempts; attempt++)); do
		port=$((port + 1))
		commands=$(for_family "$row")
		commands=${commands//HOST/$host}
		commands=${commands//PORT/$port}
		rm -f "$logs"/*
		if [ $in_lab ]; then
			run_in_lab "${commands%% :: *}" "${commands##* :: }" </dev/null
		else
			run_here "${commands%% :: *}" "${commands##* :: }" </dev/null
		fi
		[ "$client_status" != 0 ] && grep -qiE "$refused" "$logs/client" || break
	done
	verdict=ok
	[ "$client_status" = 0 ] || verdict=FAILED
	[ "$stays" = stays ] || [ "$server_status" = 0 ] || verdict=FAILED
	[ "$expected" = - ] || grep -qE "$expected" "$logs/client" || verdict=FAILED
	printf '%-6s  server %-3s  client %-3s  attempt %-2d  %s\n' $verdict "$server_status" "$client_status" "$attempt" "$commands"
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
