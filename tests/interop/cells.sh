#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: cells.sh UROCE ATTEND OWN PEER TABLE GROUP FAMILY MTU
#
# Runs the rows of one group of a table (cells.table describes it) between uroce here and soft-RoCE in the peer (PEER is
# peer.sh's directory): each size both ways, with the server there and with the server here. FAMILY, ipv4 or ipv6, is that of
# the GIDs; MTU is the path's, and the interfaces get one that just carries it. Prints a line for each run, with both exit
# statuses and the figure that the program reports; for a run that fails also all that both printed. At the end the packets
# are judged: tshark must find none of ours malformed, and the peer's kernel no ICRC wrong.
set -uf # words of the table are no patterns for files

uroce=$1
attend=$2
own=$3
dir=$4
table=$5
group=$6
family=$7
mtu=$8

. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/capture.sh"

# Seconds for one side: a hang, or an emulated machine on a busy one.
patience=60
[ "${group%%.*}" != verify ] || patience=400
# Nobody else has the namespace's.
port=20000

[ ! -e "$dir/skipped" ] || {
	cat "$dir/skipped"
	exit 77
}

# In the order of both sides' tables: soft-RoCE has its link-local address first.
case $family in
ipv4) here_gid=0 there_gid=1 ;;
ipv6) here_gid=1 there_gid=2 ;;
esac
# Room for the longest headers.
interface=$((mtu + 200 > 1500 ? mtu + 200 : 1500))

client=
server=
logs=$(mktemp -d)
trap 'kill $server $client 2>/dev/null; capture_stop; rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM

# listens SIDE: whether something does, on $port.
listens() {
	look "$1" "grep -qs ':$(printf %04X "$port") [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6"
}

# arguments GID SIZE SERVER PROGRAM...: what each of the programs calls these; SERVER is its address, at the client.
arguments() {
	local gid=$1 size=$2 server=$3
	shift 3
	[ "$size" = - ] || set -- "$@" -s $((${size//MTU/$mtu}))
	case $1 in
	verify) echo "$* -g $gid --path-mtu $mtu $([ -n "$server" ] && echo --connect "$server:$port" || echo --listen "$port")" ;;
	refusals) echo "$* $gid $mtu $port $server" ;;
	ibv_ud_pingpong) echo "$* -p $port -g $gid $server" ;;
	ibv_*) echo "$* -p $port -g $gid -m $mtu $server" ;;
	# The timeout is 1 s: what was sent again and is still to be sent too, soft-RoCE of Linux 6.1 gives another PSN.
	*) echo "$* -p $port -x $gid -m $mtu -u 18 $server" ;;
	esac
}

# run SERVER_SIDE SIZE PROGRAM...: both sides; their output in $logs, their statuses in server_status and client_status.
run() {
	local at=$1 size=$2 role here_role here_arguments there_arguments
	shift 2
	port=$((port + 1))
	[ "$at" = here ] && here_role=server || here_role=client
	here_arguments=$(arguments $here_gid "$size" "$([ $at = here ] || echo 10.78.0.2)" "$@")
	there_arguments=$(arguments $there_gid "$size" "$([ $at = there ] || echo 10.78.0.1)" "$@")
	case $1 in
	verify | refusals)
		here_arguments=$own/$here_arguments
		there_arguments=/tests/$there_arguments
		;;
	esac

	for role in server client; do
		if [ $role = $here_role ]; then
			# shellcheck disable=SC2086 # a list of words
			here "$logs/$role" $here_arguments &
		else
			# shellcheck disable=SC2086 # a list of words
			there "$logs/$role" "$(printf '%q ' $there_arguments)" &
		fi
		[ $role = client ] || {
			server=$!
			while kill -0 $server 2>/dev/null && ! listens "$at"; do sleep 0.1; done
		}
	done
	client=$!
	# One side failed. The other has a moment to see it; in the peer somebody has to end it.
	wait -n $server $client || {
		sleep 1
		there_stop
		kill $server $client 2>/dev/null
	}
	wait $server
	server_status=$?
	wait $client
	client_status=$?
	server=
	client=
}

# The figure that the program printed: usec for one iteration, a column of perftest's, or what verify tried.
figure() {
	awk '
		/^ *#bytes/ { table = 1; next }
		table && $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { print $4 (NF > 5 ? " us" : " MiB/s"); exit }
		/^[0-9]+ (rows|cases), 0 failed$/ { print; exit }
		$2 == "iters" && $7 ~ /^[0-9.]+$/ { print $7 " us"; exit }
	' "$1"
}

"$peer" mtu "$dir" $interface || exit 1
capture_start "$dir" "$logs" || exit 1

rows=0
failed=0
while read -r row_group sizes command; do
	[ "$row_group" = "$group" ] || continue
	# Both sides of verify do the same.
	[ "${command%% *}" = verify ] && sides=there || sides="there here"
	for size in ${sizes//,/ }; do
		for at in $sides; do
			rows=$((rows + 1))
			# On a machine that is too busy perftest cannot tell how fast its clock runs, and gives up.
			tries=5
			while
				# shellcheck disable=SC2086 # a list of words
				run $at $size $command </dev/null
				tries=$((tries - 1))
				[ $tries -gt 0 ] && grep -qs '^Correlation coefficient' "$logs/server" "$logs/client"
			do :; done
			verdict=ok
			result=$(figure "$logs/client")
			# The programs report some errors and exit with 0 all the same. What uroce run counts at their end may be wanted.
			[ $server_status = 0 ] && [ $client_status = 0 ] && [ -n "$result" ] &&
				! grep -hvE '0 failed$|^uroce: ' "$logs/server" "$logs/client" |
				grep -qiE 'invalid data|error|fail|unable|could ?n.t' ||
				verdict=FAILED
			printf '%-6s  server %-5s %-3s  client %-3s  %-9s  %-36s  %s\n' $verdict $at $server_status \
				$client_status "$size" "$command" "$result"
			[ $verdict = ok ] && continue
			failed=$((failed + 1))
			echo "-- the server printed:"
			cat "$logs/server"
			echo "-- the client printed:"
			cat "$logs/client"
			echo "--"
		done
	done
done <"$table"

capture_judge "$group-$family-$mtu" $failed || failed=$((failed + 1))
echo "$group, $family, path MTU $mtu: $rows runs, $failed failed"
[ $rows -gt 0 ] && [ $failed = 0 ]
