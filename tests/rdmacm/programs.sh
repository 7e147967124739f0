#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: programs.sh UROCE ATTEND GROUP HOST FIRST_PORT
#
# Runs the rows of one group of programs.table: a server, and its client when that listens. HOST is the address that the client is
# given: one of this host, or own4, its first one that is no loopback; or lab4 or lab6: each runs on a host of its own (uroce lab); or
# there4, there6, here4 or here6: one of them runs on soft-RoCE in the peer whose directory is $PEER (tests/interop), the server
# there or here. $MTU is the path's then.
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
source=$(dirname "$(realpath "$0")")

# Seconds for one side. Only a hang takes so long, or a machine that nobody should run tests on.
patience=60
[[ $group != *-all ]] || patience=280
attempts=20
refused='REJECTED[,;] error:? 8|CM event bl blka 8|connection refused|RDMA_CM_EVENT_UNREACHABLE'
# What perftest says where it cannot tell how fast its clock runs.
refused+='|Correlation coefficient'

own4() {
	ip -4 -o address show scope global 2>/dev/null | awk '{ sub(/\/.*/, "", $4); print $4; exit }'
}

place=$host
case $place in
lab4) host=10.77.0.1 ;;
lab6) host=fd77::1 ;;
own4) host=$(own4) ;;
there4) host=10.78.0.2 ;;
there6) host=fd78::2 ;;
here4) host=10.78.0.1 ;;
here6) host=fd78::1 ;;
esac
[ -n "$host" ] || { echo "skipped: no address but loopback"; exit 77; }

logs=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$logs"' EXIT
case $place in
lab[46])
	reason=$("$uroce" lab 1 -- true 2>&1) || { echo "skipped: $reason"; exit 77; }
	run=run_in_lab
	;;
there[46] | here[46])
	dir=$PEER
	. "$source/../interop/sides.sh"
	. "$source/../interop/capture.sh"
	[ ! -e "$dir/skipped" ] || { cat "$dir/skipped"; exit 77; }
	trap 'kill $server 2>/dev/null; capture_stop; rm -rf "$logs"' EXIT
	"$peer" mtu "$dir" $((MTU + 200 > 1500 ? MTU + 200 : 1500)) || exit 1
	capture_start "$dir" "$logs" || exit 1
	run=run_with_peer
	;;
*) run=run_here ;;
esac
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

# listening PORT: a line of shell. Has a program that port of rdma_cm, of uroce's or of the kernel's, or does it listen there on TCP?
# udaddy takes no port.
listening() {
	local wanted=$1
	[ "$group" != udaddy ] || wanted=7174
	cat <<-END
		grep -q "@uroce/cm/[0-9a-f]*/$wanted/" /proc/net/unix ||
			cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$(printf %04X "$wanted") [0-9A-F:]* 0A " ||
			cat /proc/net/udp /proc/net/udp6 2>/dev/null | grep -q ":$(printf %04X "$wanted") " ||
			rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:$wanted "
	END
}

# run_here SERVER CLIENT: on this host; sets server_status and client_status.
run_here() {
	split "$1"
	(start "${words[@]}") >"$logs/server" 2>&1 &
	server=$!
	# attend ends it, if nothing else does.
	while kill -0 $server 2>/dev/null && ! eval "$(listening "$port")"; do sleep 0.02; done
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

# become SIDE LOG COMMAND, in a subshell only.
become() {
	case $1 in
	here)
		split "$3"
		here "$2" "${words[@]}"
		;;
	there) there "$2" "$3" ;;
	esac
}

# run_with_peer SERVER CLIENT: one of them on soft-RoCE.
run_with_peer() {
	local side=${place%[46]} other=there
	[ "$side" = here ] || other=here
	(become $side "$logs/server" "$1") &
	server=$!
	while kill -0 $server 2>/dev/null && ! look $side "$(listening "$port" | tr -d '\n')"; do sleep 0.1; done
	(become $other "$logs/client" "$2")
	client_status=$?
	if [ "$stays" = stays ] || [ $client_status != 0 ]; then
		[ "$side" = here ] || there_stop
		[ "$side" = there ] || kill $server 2>/dev/null
	fi
	wait $server
	server_status=$?
	server=
}

# Rows that are not for the peer. On soft-RoCE rdma-core's own rstream does not connect without waiting, to itself neither. perftest's
# server stops listening, and an emulated one has not begun again when its client comes back; what begins with a large buffer is slower.
beyond_peer() {
	case $place-$group in
	here[46]-rstream) [[ $row == *"-T a"* ]] ;;
	there[46]-perftest) [[ $row != *ib_write_bw* && $row != *"-c UD"* ]] ;;
	*) false ;;
	esac
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
	[ "$row_group" = "$group" ] && ! beyond_peer || continue
	rows=$((rows + 1))
	for ((attempt = 1; attempt <= attempts; attempt++)); do
		port=$((port + 1))
		commands=$(for_family "$row")
		commands=${commands//HOST/$host}
		commands=${commands//PORT/$port}
		rm -f "$logs"/{server,client}*
		$run "${commands%% :: *}" "${commands##* :: }" </dev/null
		[ "$client_status" != 0 ] && grep -qiE "$refused" "$logs/server" "$logs/client" || break
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
done <"${TABLE:-$source/programs.table}"

[ $run != run_with_peer ] || capture_judge "$group-$place-$MTU" $failed || failed=$((failed + 1))
echo "$group at $host: $rows rows, $failed failed"
[ $rows -gt 0 ] && [ $failed = 0 ]
