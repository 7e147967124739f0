#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

peer=$HERE/lab_peer
lab() {
	timeout 100 "$uroce" lab "$@"
}

# needs OPTIONS: skips the test where this machine makes no hosts of this kind.
needs() {
	found=0
	lab 1 "$@" -- true 2>needs || found=$?
	[ $found = 125 ] && skip "$(cat needs)"
	same "status of a lab that does nothing" 0 $found
}

# datagrams COUNT SIZE ADDRESS OPTIONS: from host 2 to host 1, with the link's options; what arrives is left in out.
# With "nocheck" before the options they have no checksum. That $enough of them may arrive, if it is set, is waited for.
datagrams() {
	count=$1 size=$2 address=$3 check=
	shift 3
	[ "${1-}" = nocheck ] && check=$1 && shift
	rm -f ready1 finished over
	# The sender's host stays as long as the receiver: what waits for its neighbour's address is lost with it.
	status 0 lab 2 --wait=0 --raw "$@" -- sh -c "
		'$peer' receive ${enough-$count}
		status=\$?
		: >over
		exit \$status" :: sh -c "
		until [ -e ready1 ]; do sleep 0.01; done
		'$peer' send $address $count $size $check || exit
		until [ -e over ]; do sleep 0.01; done"
	tail -n 1 out
	cat err
	eval "$(tail -n 1 out)"
}

# counted WORDS: the lab's last line says so.
counted() {
	grep -q "$1" err || fail "no '$1' in: $(cat err)"
}

hosts_reach_each_other() {
	needs
	for address in 10.77.0.1 fd77::1 host1; do
		datagrams 50 1000 $address
		same "datagrams to $address" "50 0 0" "$received $bad $late"
		status 0 lab 2 -- "$peer" listen :: "$peer" connect $address
	done
}

hosts_reach_each_other_over_the_switch() {
	needs --loss=0
	for address in 10.77.0.1 fd77::1 host1; do
		datagrams 50 1000 $address --loss=0
		same "datagrams to $address" "50 0 0" "$received $bad $late"
		status 0 lab 2 --loss=0 -- "$peer" listen :: "$peer" connect $address
	done
}

broadcasts_reach_all_hosts() {
	needs --loss=0
	for link in --wait=0 --loss=0; do
		for to in 10.77.0.255 ff02::1%eth0 239.7.7.7; do
			rm -f ready* finished
			status 0 lab 3 --wait=0 $link --raw -- sh -c "'$peer' receive 20 >received\$UROCE_LAB_HOST" :: \
				sh -c "'$peer' receive 20 >received\$UROCE_LAB_HOST" :: sh -c "
				until [ -e ready1 ] && [ -e ready2 ]; do sleep 0.01; done
				exec '$peer' send $to 20 100"
			for host in 1 2; do
				grep -q '^received=20 ' received$host ||
					fail "$to, host$host: $(tail -n 1 received$host)"
			done
		done
	done
}

each_host_is_its_own() {
	needs
	status 0 lab 3 -- sh -c 'echo $(hostname) $UROCE_LAB_HOST $UROCE_LAB_HOSTS $UROCE_LAB_IPV4 $UROCE_LAB_IPV6 \
		$UROCE_LAB_PEER; test ! -e /dev/shm/mark; echo >/dev/shm/mark; echo >/dev/shm/mark-$UROCE_LAB_HOST
		cd /dev/shm; ls -d mark*'
	sort out >sorted
	cat >expected <<-END
		host1: host1 1 3 10.77.0.1 fd77::1 host2
		host1: mark
		host1: mark-1
		host2: host2 2 3 10.77.0.2 fd77::2 host3
		host2: mark
		host2: mark-2
		host3: host3 3 3 10.77.0.3 fd77::3 host1
		host3: mark
		host3: mark-3
	END
	diff expected sorted
	[ ! -s err ] || fail "$(cat err)"
}

programs_see_the_device() {
	needs
	status 0 lab 2 --profile=rxe -- sh -c "'$HERE/client'; echo \$UROCE_PROFILE"
	sort out >sorted
	cat >expected <<-END
		host1: $library
		host1: rxe
		host2: $library
		host2: rxe
	END
	diff expected sorted
	status 0 lab 2 -- ibv_devinfo -v
	for i in 1 2; do
		grep -q "^host$i:.*GID.*::ffff:10.77.0.$i" out || fail "$(cat out)"
	done
	wrong_settings 125 lab 2 -- true
}

commands_are_of_one_host_each() {
	needs
	status 0 lab 4 -- echo a :: echo b -- c :: echo '$x'
	sort out >sorted
	printf '%s\n' 'host1: a' 'host2: b -- c' 'host3: $x' 'host4: $x' | diff - sorted
}

loss_loses() {
	needs --loss=0
	datagrams 200 100 10.77.0.1 --loss=30 --seed=1
	[ "$received" -gt 100 ] && [ "$received" -lt 180 ] || fail "received $received of 200"
	same "bad and late" "0 0" "$bad $late"
	counted " $((200 - received)) lost,.*(--seed=1)$"
	datagrams 100 100 fd77::1 --loss=100
	same received 0 "$received"
}

duplicate_delivers_twice() {
	needs --loss=0
	enough=200
	datagrams 100 100 10.77.0.1 --duplicate=100
	same received 200 "$received"
	enough=280
	datagrams 200 100 fd77::1 --duplicate=20 --seed=2
	[ "$received" -gt 210 ] && [ "$received" -lt 280 ] || fail "received $received of 200"
	counted " $((received - 200)) duplicated"
	same "different ones" 200 "$(sed '$d' out | sort -u | wc -l)"
}

reorder_reorders_and_loses_none() {
	needs --loss=0
	for address in 10.77.0.1 fd77::1; do
		datagrams 200 100 $address --reorder=10
		same "received, bad" "200 0" "$received $bad"
		[ "$late" -gt 0 ] || fail "all in order"
		same "different ones" 200 "$(sed '$d' out | sort -u | wc -l)"
	done
	# One that nothing overtakes arrives as well.
	datagrams 1 100 10.77.0.1 --reorder=100
	same received 1 "$received"
}

corruption_reaches_the_payload() {
	needs --loss=0
	datagrams 200 1000 10.77.0.1 nocheck --corrupt=100 --seed=3
	[ "$bad" -gt 100 ] || fail "only $bad of $received are bad"
	counted ' 2[0-9][0-9] corrupted'
	datagrams 200 1000 10.77.0.1 nocheck --corrupt=20 --seed=3
	[ "$bad" -gt 20 ] && [ "$bad" -lt 60 ] || fail "$bad of $received are bad"
}

# Nothing on the way writes a new checksum. A few damages the checksum of 16 bits does not show.
corruption_is_seen_by_checksums() {
	needs --loss=0
	for address in 10.77.0.1 fd77::1; do
		datagrams 200 1000 $address --corrupt=100 --seed=4
		[ "$received" -lt 10 ] || fail "$received are accepted"
		counted ' 2[0-9][0-9] corrupted'
	done
}

delay_delays_and_keeps_order() {
	needs --loss=0
	datagrams 100 100 10.77.0.1 --delay=100ms
	same "received, bad, late" "100 0 0" "$received $bad $late"
	[ "$least" -ge 100 ] || fail "after $least ms"
	datagrams 100 100 fd77::1 --delay=100ms,90ms --seed=2
	same "received, bad, late" "100 0 0" "$received $bad $late"
	[ "$least" -ge 10 ] && [ "$least" -lt 100 ] || fail "after $least ms"
	[ "$most" -ge 110 ] || fail "at most after $most ms"
}

rate_holds_and_its_queue_is_bounded() {
	needs --loss=0
	# 100 frames of 1042 bytes at 1 Mbit/s take 834 ms.
	datagrams 100 1000 10.77.0.1 --rate=1M --queue=200k
	same "received, bad, late" "100 0 0" "$received $bad $late"
	[ "$most" -ge 800 ] || fail "all in $most ms"
	datagrams 100 1000 10.77.0.1 --rate=1M --queue=10420
	[ "$received" -ge 10 ] && [ "$received" -lt 50 ] || fail "$received of 100 found room"
	counted " $((100 - received)) too many for the queue"
}

mtu_is_the_interfaces() {
	needs --loss=0
	datagrams 10 8900 10.77.0.1 --loss=0 --mtu=9000
	same received 10 "$received"
	status 0 lab 1 --mtu=9000 -- cat /sys/class/net/eth0/mtu
	same mtu 'host1: 9000' "$(cat out)"
}

# The order is left out: a frame that is held back goes on after 5 ms, whoever has had a turn by then.
seed_repeats() {
	needs --loss=0
	set -- --loss=10 --duplicate=10 --reorder=10 --corrupt=10
	datagrams 200 500 10.77.0.1 nocheck --seed=6 "$@"
	sort out | grep -v received >first
	datagrams 200 500 10.77.0.1 nocheck --seed=6 "$@"
	sort out | grep -v received >again
	diff first again || fail "the same seed, and something else arrived"
	datagrams 200 500 10.77.0.1 nocheck --seed=7 "$@"
	sort out | grep -v received | cmp -s first - && fail "another seed, and the same arrived"
	# A seed that was not asked for is told.
	datagrams 200 500 10.77.0.1 nocheck "$@"
	sort out | grep -v received >first
	datagrams 200 500 10.77.0.1 nocheck --seed="$(sed -n 's/.*(--seed=\(.*\))/\1/p' err)" "$@"
	sort out | grep -v received >again
	diff first again || fail "the seed that was told repeats nothing"
}

status_is_that_of_the_first_failure() {
	needs
	status 0 lab 3 -- true
	status 7 lab 3 -- sleep 60 :: sh -c 'exit 7' :: sleep 60
	grep -q 'host2: sh failed with status 7' err || fail "$(cat err)"
	status 137 lab 2 -- sleep 60 :: sh -c 'kill -KILL $$'
	grep -q 'host2: sh was ended by signal 9' err || fail "$(cat err)"
	status 127 lab 2 -- no-such-program
	status 126 lab 2 -- /etc/passwd
}

others_are_ended_kindly_then_by_force() {
	needs
	status 3 lab 3 --wait=0 -- sh -c 'trap "echo bye; exit" TERM; echo >kind; while :; do sleep 0.1; done' :: \
		sh -c 'trap "" TERM; echo >stubborn; while :; do sleep 0.1; done' :: \
		sh -c 'until [ -e kind ] && [ -e stubborn ]; do sleep 0.01; done; exit 3'
	same output 'host1: bye' "$(cat out)"
}

services_are_ended_after_the_others() {
	needs
	status 0 lab 3 --services=1 --wait=0 -- sh -c 'trap "echo bye; exit 9" TERM; echo >up; while :; do sleep 0.1; done' :: \
		sh -c 'until [ -e up ]; do sleep 0.01; done' :: echo done
	printf '%s\n' 'host3: done' 'host1: bye' | diff - out
	status 4 lab 2 --services=1 --wait=0 -- sh -c 'exit 4' :: sleep 60
}

next_host_waits_for_the_listener() {
	needs
	status 0 lab 3 --wait=listen -- sh -c "sleep 0.3; exec '$peer' listen" :: "$peer" connect host1 :: true
	status 0 lab 2 -- sh -c "sleep 0.3; exec '$peer' listen" :: "$peer" connect host1
	status 3 lab 2 --wait=0 -- sh -c "sleep 60; exec '$peer' listen" :: "$peer" connect host1
	status 0 lab 2 --wait=300ms -- sh -c 'date +%s%N >first; sleep 1' :: sh -c 'date +%s%N >second'
	[ $(($(cat second) - $(cat first))) -ge 200000000 ] || fail "not 300 ms apart"
}

output_has_the_hosts_name() {
	needs
	status 0 lab 1 -- sh -c 'printf "a\nb\n\nc"; printf "d\n" >&2; seq 100000 | tr -d "\n" >&2'
	printf 'host1: %s\n' a b '' c | diff - out
	{ echo 'host1: d'; echo "host1: $(seq 100000 | tr -d '\n')"; } | cmp - err
	status 0 lab 1 --raw -- printf a
	same output a "$(cat out)"
}

input_is_one_hosts() {
	needs
	echo word >in
	lab 3 --input=2 -- sh -c 'cat; :' <in >out
	same output 'host2: word' "$(cat out)"
	lab 2 -- cat <in >out
	same output '' "$(cat out)"
}

# start_holders FIFO: a lab whose commands, and what they leave in the background, have it open for writing, and descriptor 7
# reads from it; $started is the lab's process.
start_holders() {
	mkfifo "$1"
	exec 8<>"$1" 7<"$1"
	"$uroce" lab 2 --loss=0 -- sh -c "
		trap 'exit 0' TERM
		exec 9>'$1'
		setsid sh -c 'trap \"\" TERM HUP; echo >$1.\$UROCE_LAB_HOST; while :; do sleep 1; done' &
		while :; do sleep 0.1; done" 8>&- 7<&- &
	started=$!
	until [ -e "$1.1" ] && [ -e "$1.2" ]; do
		kill -0 $started || fail "the lab ended"
		sleep 0.01
	done
	exec 8>&-
}

signal_ends_all() {
	needs --loss=0
	for signal in TERM:143 HUP:129; do
		start_holders "fifo$signal"
		kill -${signal%:*} $started
		found=0
		wait $started || found=$?
		same "status after $signal" ${signal#*:} $found
		timeout 1 cat <&7 || fail "something outlives the lab"
	done
}

killed_lab_leaves_nothing() {
	needs --loss=0
	start_holders fifo
	kill -KILL $started
	wait $started || :
	timeout 30 cat <&7 || fail "something is left behind"
}

ordinary_user_stays_himself() {
	[ "$(id -u)" = 0 ] || skip "is run as root, to be somebody else"
	install_in "$work"
	cp "$HERE/client" "$peer" .
	mkdir open
	chmod 777 open
	cd open
	somebody="setpriv --reuid=65534 --regid=65534 --clear-groups ../bin/uroce lab"
	timeout 60 $somebody 1 --loss=0 -- true 2>needs || skip "$(cat needs)"
	status 0 timeout 60 $somebody 2 -- sh -c 'echo $(id -u) $(id -g) $(../client); echo >mine$UROCE_LAB_HOST'
	sort out >sorted
	printf 'host%s: 65534 65534 %s/lib/uroce/libibverbs.so.1\n' 1 "$work" 2 "$work" | diff - sorted
	same "owner of a file" 65534 "$(stat -c %u mine1)"
	for link in --wait=listen --loss=0; do
		status 0 timeout 60 $somebody 2 $link -- ../lab_peer listen :: ../lab_peer connect host1
	done
	# He administers the network of his hosts, and nothing else.
	status 0 timeout 60 $somebody 1 -- sh -c 'grep CapEff /proc/self/status'
	same capabilities 'host1: CapEff:	0000000000003400' "$(cat out)"
}

# in_namespace SCRIPT: as root of a user namespace, who has all capabilities there.
in_namespace() {
	unshare -rm true 2>/dev/null || skip "unshare -rm is refused here"
	unshare -rm sh -c "$1"
}

refusals_are_said() {
	refused 125 'max_user_namespaces is 0' in_namespace "
		echo 0 >/proc/sys/user/max_user_namespaces
		exec setpriv --inh-caps=-all --bounding-set=-all '$uroce' lab 2 -- true"
	refused 125 '/dev/net/tun: No such file' in_namespace "
		mount -t tmpfs none /dev/net && exec '$uroce' lab 2 --loss=0 -- true"
	refused 125 'parts of /proc are hidden' in_namespace "
		mount -t tmpfs none /proc/fs && exec unshare -rm '$uroce' lab 2 -- true"
}

wrong_options_are_refused() {
	while read -r words; do
		# shellcheck disable=SC2086 # words
		status 125 "$uroce" lab $words
		[ ! -s out ] || fail "lab $words: $(cat out)"
	done <<-'END'

		2
		0 -- true
		101 -- true
		x -- true
		2 --
		2 -- true ::
		2 -- :: true
		1 -- true :: true
		2 --loss=101 -- true
		2 --loss=-1 -- true
		2 --loss=1x -- true
		2 --loss=nan -- true
		2 --delay=1 -- true
		2 --delay=61s -- true
		2 --delay=1ms,2ms -- true
		2 --rate=0 -- true
		2 --rate=1X -- true
		2 --queue=1k -- true
		2 --seed=-1 -- true
		2 --mtu=1000 -- true
		2 --mtu=70000 -- true
		2 --services=2 -- true
		2 --input=3 -- true
		2 --wait=soon -- true
		2 --no-such-option -- true
	END
}

run_case "$@"
