#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: pairs.sh UROCE ATTEND TABLE GROUP TIMING FIRST_PORT
#
# Runs the rows of one group of a table (pairs.table describes it): each is a program of the distribution, as a server
# and as its client, two processes on uroce. Prints a line for each row, with both exit statuses and the figure that the
# program reports; for a row that fails also all that both printed, and the causes. TIMING is prompt, or a value of
# UROCE_TIMING. $PRELOAD, if set, is preloaded into the programs: a sanitizer's runtime. With $LAB, options of uroce lab, each
# side runs on a host of its own, and $GID and $MTU take the place of these words in the table.
set -u

uroce=$1
attend=$2
table=$3
group=$4
timing=$5
first_port=$6

# Seconds for one side. Only a hang takes so long, or a machine that nobody should run tests on.
patience=120

unset UROCE_TIMING
[ "$timing" = prompt ] || export UROCE_TIMING="$timing"

# That group is what two processes do that have only one processor.
[ "$group" != one-processor ] ||
	taskset -cp "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" $$ >/dev/null

server=
client=
logs=$(mktemp -d)
trap 'kill $server $client 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM

# listening PORT: is anything listening there?
listening() {
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$(printf %04X "$1") [0-9A-F:]* 0A "
}

# The groups run in parallel, each with a range of ports; the process ID keeps two runs of the suite apart.
ports=100
next_port=$(($$ % ports))
free_port() {
	while
		port=$((first_port + next_port))
		next_port=$(((next_port + 1) % ports))
		listening $port
	do :; done
}

alive() {
	kill -0 "$1" 2>/dev/null
}

# In the background only: it becomes the command. attend tells the causes; among the program's own words they would be in the way:
# a program over UC or UD may well lose messages, and succeed.
export UROCE_EXPLAIN=off
start() {
	[ -z "${PRELOAD:-}" ] || export LD_PRELOAD="$PRELOAD"
	exec "$attend" $patience "$uroce" run -- "$@"
}

# One side failed. The other has a moment to see it, and is stopped then: some wait for ever.
outlive() {
	local tries=100
	while [ $tries -gt 0 ] && alive "$1"; do
		sleep 0.02
		tries=$((tries - 1))
	done
	[ $tries -gt 0 ] || kill "$1"
}

# run COMMAND...: both sides; their output in $logs, their statuses in server_status and client_status.
run() {
	free_port
	start "$@" -p $port >"$logs/server" 2>&1 &
	server=$!
	# attend ends it, if nothing else does.
	while alive $server && ! listening $port; do sleep 0.02; done
	start "$@" -p $port 127.0.0.1 >"$logs/client" 2>&1 &
	client=$!

	wait -n $server $client || {
		outlive $server
		outlive $client
	}
	wait $server
	server_status=$?
	wait $client
	client_status=$?
	server=
	client=
}

# run_in_lab COMMAND...: the same between two hosts.
run_in_lab() {
	# shellcheck disable=SC2086,SC2016 # a list of words; what another shell expands
	(
		cd "$logs" && rm -f ./*
		exec "$attend" $((2 * patience)) "$uroce" lab 2 $LAB --raw --wait=listen -- \
			sh -c '"$@" >server 2>&1; echo $? >server_status' sh "$attend" $patience "$@" :: \
			sh -c '"$@" >client 2>&1; echo $? >client_status' sh "$attend" $patience "$@" host1 >lab 2>&1
	)
	server_status=$(cat "$logs/server_status" 2>/dev/null || echo 124)
	client_status=$(cat "$logs/client_status" 2>/dev/null || echo 124)
}

# results FILE: how many results the program printed, and the figure of the last.
#   perftest, bandwidth: bytes, iterations, peak, average MiB/s, Mmsg/s
#   perftest, latency:   bytes, iterations, min, max, typical us, ...; in duration mode: bytes, iterations, average us, ...
#   pingpong:            N iters in S seconds = F usec/iter
results() {
	awk '
		/^ *#bytes/ {
			bandwidth = /BW average/
			column = bandwidth ? 4 : /t_typical/ ? 5 : 3
		}
		column && $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && $column ~ /^[0-9.]+$/ {
			n++
			figure = $1 " B: " $column (bandwidth ? " MiB/s, " $5 " Mmsg/s" : " us")
		}
		$2 == "iters" && $7 ~ /^[0-9.]+$/ { n++; figure = $7 " us" }
		END { print n + 0, figure }
	' "$1"
}

# sizes: how many powers of two there are from 2 to the longest datagram.
sizes() {
	(
		[ -z "${PRELOAD:-}" ] || export LD_PRELOAD="$PRELOAD"
		"$uroce" run -- ibv_devinfo
	) | awk '/active_mtu/ { for (n = 0; 2 ^ (n + 1) <= $2; n++); print n; exit }'
}

# refused STATUS: an end by the program's own decision, not by a signal or for want of time.
refused() {
	[ "$1" != 0 ] && [ "$1" -lt 124 ]
}

# judge EXPECTED: is what the two did what the row expects? The figure, or what was said, is left in $figure.
judge() {
	figure=
	case $1 in
	!*)
		[ $server_status != 0 ] && [ $client_status != 0 ] || return
		refused $server_status || refused $client_status || return
		figure=$(cat "$logs/server" "$logs/client" | grep -m1 "${1#!}") || return
		figure=${figure%%;*}
		;;
	mtu)
		judge "$(sizes)"
		;;
	*)
		figure=$(results "$logs/client")
		local count=${figure%% *}
		figure=${figure#* }
		[ $server_status = 0 ] && [ $client_status = 0 ] && [ "$count" = "$1" ] || return
		# The programs report some errors and exit with 0 all the same.
		! grep -qiE 'invalid data|error|fail|unable|could ?n.t' "$logs/server" "$logs/client"
		;;
	esac
}

way=run
if [ -n "${LAB-}" ]; then
	way=run_in_lab
	# shellcheck disable=SC2086 # a list of words
	reason=$("$uroce" lab 1 $LAB -- true 2>&1) || { echo "skipped: $reason"; exit 77; }
fi
rows=0
failed=0
while read -r row_group row_timing expected command; do
	[ "$row_group" = "$group" ] || continue
	case ,$row_timing, in
	,all, | *,"${timing%%:*}",*) ;;
	*) continue ;;
	esac
	rows=$((rows + 1))
	command=${command/GID/${GID:-0}}
	command=${command/MTU/${MTU:-1024}}
	# shellcheck disable=SC2086 # a list of words
	$way $command </dev/null
	verdict=ok
	judge "$expected" || verdict=FAILED
	printf '%-6s  server %-3s  client %-3s  %-52s  %s\n' \
		$verdict $server_status $client_status "$command" "$figure"
	[ $verdict = ok ] && continue
	failed=$((failed + 1))
	echo "-- expected $expected; the server printed:"
	cat "$logs/server"
	echo "-- the client printed:"
	cat "$logs/client"
	echo "--"
done <"$table"

echo "$group, $timing: $rows rows, $failed failed"
[ $rows -gt 0 ] && [ $failed = 0 ]
